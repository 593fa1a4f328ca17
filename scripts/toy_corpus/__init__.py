"""The toy corpus: a small grammar that makes English sentences and their German translations.

Each module imports only from those before it:

    inflection, lexicon            words and their forms
    phrases, clauses, sentences    what is said, and the order of its words in both languages
    chooser, likely_deeds          random choices; what people are likely to do
    phrase_maker, clause_maker     random phrases and clauses that make sense
    main_clauses, two_clauses, relative_clauses, movement, topics
                                   the kinds of sentence
    plans, corpus                  all kinds together; the three sets and what they hold out
"""
