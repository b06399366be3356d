"""Commands from standard input, each pickled as (name, arguments, options); answers to standard output as (succeeded, answer)."""

import os
import pickle
import sys


def serve(commands):
    """Calls the methods of `commands` until the input ends. The processes of the tests use nothing else of standard output."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            name, arguments, options = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = True, getattr(commands, name)(*arguments, **options)
        except BaseException as error:  # noqa: BLE001 - the other end raises it
            answer = False, f"{type(error).__name__}: {error}"
        pickle.dump(answer, answers)
        answers.flush()
