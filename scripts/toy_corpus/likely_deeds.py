"""What people are likely to do, by state, weather, place and occasion.

Deeds are the names of verbs, separated by commas.
"""

# What people do because of how they are, and in spite of it.
STATES = (
    ("tired", "fall asleep, rest, sit down, sleep, get up"),
    ("hungry", "eat, cook, bake, order"),
    ("sad", "cry, call, write, talk"),
    ("happy", "laugh, sing, dance, thank, invite"),
    ("sick", "rest, sleep, sit down"),
    ("polite", "thank, answer, congratulate, help, listen to"),
    ("lazy", "sleep, rest, sit down"),
    ("brave", "help, follow"),
    ("rich", "give, invite"),
)
DESPITE_STATES = (
    ("tired", "work, read, dance, cook, tidy up, write, clean"),
    ("hungry", "sleep, work, dance, sing, wait"),
    ("sad", "laugh, sing, dance, play"),
    ("sick", "work, swim, dance, get up, cook"),
    ("lazy", "work, tidy up, clean, help, wash"),
    ("poor", "laugh, give, invite, buy"),
)
# What people do because of the weather, and in spite of it; ``wet`` is rain or snow.
WEATHER_DEEDS = {
    "wet": "close, hurry, put on, come back, read, listen to, write",
    "cold": "close, put on, cook, hurry",
    "hot": "open, swim, take off, rest",
    "warm": "open, swim, take off, sing, dance",
    "dark": "hurry, sleep, come back",
}
DESPITE_WEATHER = {
    "wet": "swim, dance, work, wash, visit, meet, play, pick up",
    "cold": "swim, open, take off, work, dance",
    "hot": "work, dance, put on, bake, tidy up",
    "warm": "put on, close, work, read, sleep",
    "dark": "read, work, write, look for, find",
}
# Places to go to, and what for.
PURPOSES = (
    ("shop", "buy, meet"),
    ("bakery", "bake"),
    ("restaurant", "eat, order, meet, drink"),
    ("library", "read, work, meet"),
    ("station", "pick up, meet"),
    ("airport", "pick up, meet"),
    ("hospital", "visit, help"),
    ("kitchen", "cook, bake, eat, drink"),
    ("bathroom", "wash, clean"),
    ("garden", "paint, rest, sing"),
    ("cellar", "look for"),
    ("park", "meet, rest, paint, dance"),
    ("lake", "swim, rest, paint"),
    ("beach", "swim, rest"),
    ("office", "work, call, write"),
    ("church", "sing"),
    ("hotel", "sleep, meet"),
)
# What people do because of the noise or the rain, in spite of it, and on occasions.
CAUSED = {
    "because of": "wake up, close, hurry, come back, cry",
    "despite": "sleep, work, read, dance, sing, swim, wash, visit, help, paint, fall asleep",
    "during": "sleep, laugh, talk, drink, eat, listen to, fall asleep, read, think, meet, ask",
    "after": "dance, thank, rest, sing, drink, meet, call, come back, congratulate, visit, tidy up",
    "before": "hurry, rest, cook, buy, call, meet, wash, clean, eat, pick up, write, put on",
}
