"""Everyday questions and small sums, made of lists of words. Needs no torch."""

from __future__ import annotations

import random
from collections.abc import Iterator

_THINGS = """
apples, bread, cheese, chocolate, coffee, honey, noodles, olive oil, pancakes, potatoes, rice,
soup, spices, tea, tomatoes, yoghurt;
ants, bats, bears, bees, butterflies, cats, crocodiles, dogs, dolphins, eagles, elephants, frogs,
horses, octopuses, owls, parrots, penguins, rabbits, sharks, snakes, spiders, tigers, turtles,
whales, wolves;
clouds, deserts, earthquakes, fire, forests, glaciers, islands, lakes, lightning, mountains, rain,
rainbows, rivers, snow, soil, the ocean, the seasons, tides, tornadoes, volcanoes, waterfalls,
wind;
atoms, bacteria, black holes, cells, comets, electricity, evolution, friction, fossils, galaxies,
genes, gravity, heat, light, magnets, molecules, photosynthesis, planets, radio waves, sound,
stars, the brain, the heart, the immune system, the lungs, the Moon, the Sun, vaccines, viruses,
vitamins;
algebra, calculus, fractions, geometry, graphs, logarithms, percentages, prime numbers,
probability, statistics, triangles;
algorithms, arrays, caches, chatbots, compilers, cryptography, databases, debugging, functions,
hash tables, lists, loops, neural networks, operating systems, passwords, pointers, Python,
recursion, regular expressions, robots, search engines, servers, sorting, spreadsheets, strings,
the internet, unit tests, version control, web pages, Wi-Fi;
banks, budgets, companies, customers, insurance, interest rates, inflation, investing, loans,
marketing, markets, money, savings, startups, taxes, trade;
bicycles, boats, bridges, buses, cameras, cars, clocks, computers, engines, headphones, lamps,
lifts, maps, paper, phones, planes, printers, refrigerators, roads, satellites, solar panels,
telescopes, televisions, trains, tunnels, umbrellas, windmills;
ancient Egypt, ancient Greece, castles, explorers, knights, railways in the past, the Cold War, the
Middle Ages, the Renaissance, the Roman Empire, the Silk Road, the printing press, Vikings;
Africa, Brazil, Canada, China, France, Germany, India, Italy, Japan, Kenya, London, Mexico, New
York, Norway, Spain, the Alps, the Amazon;
ballet, books, chess, comics, dancing, drawing, films, folk songs, jazz, museums, music, opera,
painting, photography, plays, poetry, puppets, sculpture, stories, the guitar, the piano, the
violin;
basketball, camping, climbing, cycling, exercise, football, gardening, hiking, running, sailing,
skiing, sleep, swimming, tennis, walking, yoga;
anger, confidence, courage, curiosity, dreams, fear, friendship, happiness, habits, honesty,
kindness, luck, memory, patience, stress, teamwork, time, trust;
birthdays, children, cooking, doctors, families, farms, festivals, gifts, holidays, homework,
hospitals, houses, interviews, languages, laws, letters, libraries, neighbours, newspapers,
parents, schools, shopping, students, teachers, the weather, travel, universities, villages,
weddings, work
"""
_TEMPLATES = (
    "What are {a}?",
    "Tell me about {a}.",
    "Explain {a} to a ten-year-old.",
    "Explain {a} to an expert in {b}.",
    "Why do people care about {a}?",
    "How do {a} and {b} differ?",
    "What do {a} and {b} have in common?",
    "Give me three interesting facts about {a}.",
    "List five words that go with {a} and say why.",
    "Write a short poem about {a}.",
    "Write a short story with {a} and {b} in it.",
    "Write two sentences about {a}.",
    "Write a letter to a friend about {a}.",
    "Write the first paragraph of an article about {a}.",
    "Write a conversation between a teacher and a student about {a}.",
    "What is the most common mistake people make about {a}?",
    "What should a beginner know about {a}?",
    "How has our view of {a} changed over time?",
    "Name some advantages and disadvantages of {a}.",
    "Make a plan for one week of learning about {a}.",
    "Ask me four quiz questions about {a} and give the answers.",
    "What questions do people often ask about {a}?",
    "Describe {a} without using the word itself.",
    "Is it true that {a} are linked to {b}?",
    "Suggest a title for a book about {a} and {b}.",
    "I have to give a talk about {a}. What should I say?",
    "Summarise what is known about {a}.",
    "How would you start a lesson on {a}?",
    "What would the world be like without {a}?",
    "Write a slogan for a campaign about {a}.",
    "Write an email that asks for information about {a}.",
    "Give me advice on {a}.",
)


def things() -> list[str]:
    """The words that questions are about, each once."""
    words = _THINGS.replace("\n", " ").replace(";", ",").split(",")
    return list(dict.fromkeys(" ".join(word.split()) for word in words if word.strip()))


def questions(draw: random.Random) -> Iterator[str]:
    """Every template with every thing, shuffled; the second thing of a template is drawn."""
    words = things()
    pairs = [(template, word) for template in _TEMPLATES for word in words]
    draw.shuffle(pairs)
    for template, word in pairs:
        yield template.format(a=word, b=draw.choice(words))


def sums(draw: random.Random) -> Iterator[str]:
    """Small sums without end; the same one may come twice."""
    while True:
        a, b, c = draw.randint(2, 120), draw.randint(2, 60), draw.randint(2, 12)
        yield draw.choice(
            (
                f"What is {a} plus {b}?",
                f"{a} + {b} = ?",
                f"What is {a + b} minus {b}?",
                f"Multiply {b} by {c}.",
                f"What is {b * c} divided by {c}?",
                f"Is {a} larger than {b + c}?",
                f"What is {c * 5}% of {a * 10}?",
                f"Tom has {a + b} marbles and gives {b} away. How many does he keep?",
                f"A ticket costs {c} euros. What do {b} tickets cost?",
                f"A bus drives {b} km in one hour. How far does it get in {c} hours?",
                f"There are {c} boxes with {b} pens each. How many pens are there?",
                f"Count from {c} to {c + 9}.",
                f"Write the next three numbers: {c}, {2 * c}, {3 * c}.",
                f"Which of {a}, {b} and {c} is the smallest?",
                f"Solve for x: x + {b} = {a + b}.",
            )
        )
