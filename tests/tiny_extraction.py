"""A model that is none and extracts by rule: real processes and files, no weights."""

from pathlib import Path

from tiny import SPEAKS

# Reads "Ada lives in Rome." and the like as the sentence says; leaves the rest.
RULES = (
    SPEAKS
    + """
def say(self, text):
    user = text.split("<|user|>")[1].split("<|end|>")[0]
    if '"same"' in text:
        town = '"relation": "home town"' in user.split("Known")[0]
        wanted = r'"relation": "home",' if town else "none of these"
        return '{"same": %s}' % self.re.search(rf"^(\\d+): .*{wanted}", user, self.re.M)[1]
    shown = user.rpartition("\\nRecord")[2]
    entries = []
    for line in self.re.findall(r'^{"id": .*}$', shown, self.re.M):
        record = self.json.loads(line)
        found = self.re.fullmatch(r"(\\w+) (lives in|lies on the river) (\\w+)[.]", record["text"])
        facts = []
        if found:
            relation = "river" if "river" in found[2] else "home town" if found[1] == "Carl" else "home"
            facts = [{"subject": found[1], "relation": relation, "object": found[3]}]
        entries.append({"id": record["id"], "status": "facts" if facts else "no_fact", "facts": facts})
    return self.json.dumps({"records": entries})
"""
)


def extractor(model: Path, **changes: object) -> dict[str, object]:
    """The section of an experiment that lets it extract; its engine must be installed (conftest's `plugin`)."""
    reader = {
        "name": "rules",
        "engine": "theirs",
        "model": {"folder": str(model)},
        "options": {"target": str(model / "tokenizer.json")},
    }
    return {"reader": reader, "statements": 2, "wave": 2, "output_cap": 2_048, "input_cap": 24_000, **changes}
