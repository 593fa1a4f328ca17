"""All kinds of sentence and how often each is made."""

from collections.abc import Callable
from dataclasses import replace

from toy_corpus import main_clauses, movement, relative_clauses, topics, two_clauses
from toy_corpus.clause_maker import ClauseMaker
from toy_corpus.sentences import Sentence

PLANS: tuple[tuple[Callable[[ClauseMaker], Sentence], int], ...] = (
    (main_clauses.statement, 22),
    (main_clauses.negation, 9),
    (main_clauses.modal, 9),
    (main_clauses.yes_no_question, 7),
    (main_clauses.which_question, 5),
    (main_clauses.who_question, 3),
    (main_clauses.adverb_question, 3),
    (main_clauses.quality, 5),
    (main_clauses.comparison, 4),
    (two_clauses.because_state, 5),
    (two_clauses.because_it, 5),
    (two_clauses.two_events, 5),
    (two_clauses.front_clause, 4),
    (two_clauses.content_clause, 6),
    (two_clauses.try_to, 3),
    (two_clauses.in_order_to, 3),
    (relative_clauses.subject_relative, 4),
    (relative_clauses.object_relative, 5),
    (relative_clauses.place_relative, 1),
    (relative_clauses.owner_relative, 2),
    (two_clauses.coordination, 4),
    (topics.liking, 5),
    (movement.moving, 5),
    (movement.putting, 4),
    (movement.resting, 3),
    (movement.existence, 3),
    (topics.exclamation, 3),
    (topics.cost, 2),
    (topics.age, 1),
    (topics.genitive, 3),
    (topics.weather, 1),
    (topics.clock, 3),
    (movement.dwelling, 2),
    (topics.of_thing, 2),
)


def any_sentence(make: ClauseMaker) -> Sentence:
    """A sentence of any kind."""
    plan = make.pick.weighted(PLANS)
    return replace(plan(make), plan=plan.__name__)
