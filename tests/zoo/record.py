"""memplan.record() in a process that has imported PyTorch already: its worker is a copy of this process instead of a new one. All else is memplan's own."""
import functools
import os
import pickle
import sys
import tempfile

import naming


class Copy:
    """What subprocess.Popen would be, for a copy of this process."""

    def __init__(self, work):
        tasks, ours = os.pipe()
        answers, theirs = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(ours)
            os.close(answers)
            os.dup2(tasks, 0)
            os.dup2(theirs, 1)
            sys.stdin = os.fdopen(0, closefd=False)
            try:
                work()
            finally:
                os._exit(0)
        os.close(tasks)
        os.close(theirs)
        self.stdin, self.stdout = os.fdopen(ours, "w"), os.fdopen(answers)

    def kill(self):
        self.stdin.close()  # it ends when there are no more tasks

    def wait(self):
        return os.waitpid(self.pid, 0)[1]


def model_of(name):
    import catalogue

    return catalogue.make(name, naming.batch(name))[0]


def record(name, arguments, path, setups):
    import catalogue
    import memplan
    from memplan import _record
    from memplan._recording import hollow, worker

    class Worker(_record._Worker):
        def __init__(self, job, library, gpu, timeout, *_, **__):
            self.scratch, self.timeout = tempfile.TemporaryDirectory(prefix="memplan-"), timeout
            at = os.path.join(self.scratch.name, "job")
            with open(at, "wb") as f:
                hollow.write(job, f)
            with open(at + ".main", "wb") as f:
                pickle.dump(None, f)
            self.log = open(os.path.join(self.scratch.name, "log"), "w+", errors="replace")

            def work():
                os.environ["MEMPLAN_RECORDING_WORKER"] = "1"
                sys.argv = ["worker", at, self.scratch.name]
                worker.main()

            self.process = Copy(work)
            if "error" in (answer := self._answer()):
                raise memplan.Error(answer["error"])

    _record._Worker = Worker
    _, candidates = catalogue.make(name, naming.batch(name))
    args, kwargs = candidates[arguments]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    is_open = catalogue.has_batch(args, kwargs, naming.batch(name))
    sizes = dict(batches=[naming.batch(name)]) if is_open else dict(batch=None)
    memplan.record(functools.partial(model_of, name), args, kwargs, path, setups=[dict(naming.SETUPS[s][0]) for s in setups], gpu=naming.GPU, **sizes)
    return dict(open=is_open)
