"""A script that knows nothing of the launcher."""

import json
import os
import pickle
import sys


class Point:
    def __init__(self, x):
        self.x = x


if __name__ == "__main__":
    copy = pickle.loads(pickle.dumps(Point(3)))
    told = {"argv": sys.argv[1:], "rank": int(os.environ["RANK"]), "x": copy.x, "name": __name__}
    print(json.dumps({**told, "file": os.path.basename(__file__), "path0": sys.path[0], "argv0": sys.argv[0]}))
