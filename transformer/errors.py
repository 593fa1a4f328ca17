"""How the commands end when they cannot do what was asked."""


class UserError(Exception):
    """Something that a user can mend, said in one sentence: where, what was found, what would do.

    The commands print it without a traceback.
    """


def sentence_of(error: OSError) -> str:
    """Returns what to say of a file or a place that failed, its name first if that is known."""
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


class OtherDataError(UserError):
    """The training data is not what the run has learned from."""


class InterruptedRun(Exception):
    """A signal asked the run to stop; its state is saved.

    Args:
        signal_number: the signal.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number
