"""Inflection in German and English: articles, endings of adjectives, forms of verbs.

Cases are ``nom acc dat gen``; a gender is one of ``m f n`` or ``p`` for every plural; an agreement
(person and number) is one of ``1s 3s 1p 3p``.
"""

CASES = ("nom", "acc", "dat", "gen")

# Endings by case (rows, in the order of CASES) and gender (m, f, n, p).
DEFINITE = {
    "nom": "der die das die",
    "acc": "den die das die",
    "dat": "dem der dem den",
    "gen": "des der des der",
}
DIESER = {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en", "gen": "es er es er"}
STRONG = {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en", "gen": "en er en er"}
RELATIVE = {
    "nom": "der die das die",
    "acc": "den die das die",
    "dat": "dem der dem denen",
    "gen": "dessen deren dessen deren",
}

DER_WORDS = {
    "this": "dies",
    "these": "dies",
    "every": "jed",
    "all": "all",
    "which": "welch",
}
EIN_WORDS = {
    "a": "ein",
    "no": "kein",
    "my": "mein",
    "his": "sein",
    "her": "ihr",
    "our": "unser",
    "their": "ihr",
}
# Words before a plural noun that leave the adjective its strong ending.
QUANTITIES = {
    "two": "zwei",
    "three": "drei",
    "four": "vier",
    "five": "fünf",
    "ten": "zehn",
    "many": "viele",
    "some": "einige",
}
CONTRACTIONS = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "von dem": "vom",
    "bei dem": "beim",
    "zu dem": "zum",
    "zu der": "zur",
}
# The present of German auxiliaries: 1s, 3s and plural.
AUXILIARIES = {
    "haben": ("habe", "hat", "haben"),
    "sein": ("bin", "ist", "sind"),
    "werden": ("werde", "wird", "werden"),
}


def cell(table: dict[str, str], case: str, gender: str) -> str:
    """The form that a table of endings or articles holds for a case and a gender."""
    return table[case].split()["mfnp".index(gender)]


def ein_word_is_bare(case: str, gender: str) -> bool:
    """Whether ``ein`` and its like have no ending: ``ein Hund``, ``ein Buch``."""
    return (case, gender) in {("nom", "m"), ("nom", "n"), ("acc", "n")}


def german_determiner(determiner: str, case: str, gender: str) -> str:
    """The German form of an English determiner ('' where German has none)."""
    if determiner == "the":
        return cell(DEFINITE, case, gender)
    if determiner in DER_WORDS:
        return DER_WORDS[determiner] + cell(DIESER, case, gender)
    if determiner in EIN_WORDS:
        ending = "" if ein_word_is_bare(case, gender) else cell(DIESER, case, gender)
        return EIN_WORDS[determiner] + ending
    if determiner in QUANTITIES:
        word = QUANTITIES[determiner]
        return word + "n" if case == "dat" and word.endswith("e") else word
    return ""


def adjective_ending(determiner: str, case: str, gender: str) -> str:
    """The ending of an adjective after an English determiner: weak, mixed or strong."""
    follows_der = determiner == "the" or determiner in DER_WORDS
    follows_ein = determiner in EIN_WORDS and not ein_word_is_bare(case, gender)
    if not (follows_der or follows_ein):
        return cell(STRONG, case, gender)
    ends_in_e = gender in {"nom": "mfn", "acc": "fn"}.get(case, "")
    return "e" if ends_in_e else "en"


def contract(preposition: str, phrase: str) -> str:
    """A preposition before a phrase, drawn together with its article: ``im Haus``.

    Before a relative clause the article stays whole: ``von dem Hund, der bellt``.
    """
    article, _, rest = phrase.partition(" ")
    short = CONTRACTIONS.get(f"{preposition} {article}")
    return f"{short} {rest}" if short and "," not in rest else f"{preposition} {phrase}"


def auxiliary_form(infinitive: str, agreement: str) -> str:
    """The present of a German auxiliary."""
    first, third, plural = AUXILIARIES[infinitive]
    return {"1s": first, "3s": third}.get(agreement, plural)


def first_person(infinitive: str) -> str:
    """The first person singular of the present: the infinitive's stem and -e."""
    return infinitive[:-2] + "e" if infinitive.endswith("en") else infinitive[:-1] + "e"


def be_form(tense: str, agreement: str) -> str:
    """The present or past of ``be``."""
    if tense == "present":
        return {"1s": "am", "3s": "is"}.get(agreement, "are")
    return "was" if agreement in ("1s", "3s") else "were"


def regular_third(base: str) -> str:
    """The regular third person singular of an English verb."""
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + ("es" if base.endswith(("s", "sh", "ch", "x", "o")) else "s")


def regular_past(base: str) -> str:
    """The regular past of an English verb that does not double its last letter."""
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    return base + ("d" if base.endswith("e") else "ed")
