"""Plays a scenario and prints a line of JSON for each call of the component.

`python3 play.py COMPONENT SCENARIO`; tests/hosts/README.md says what a line of a scenario is.
"""

import json
import sys

from host import Host, Storage, compact


class Player:
    """A host, and what the scenario keeps of its answers."""

    def __init__(self, path):
        self.host, self.kept = Host(path), {}

    def play(self, line):
        """Plays one line of the scenario."""
        self.host.library.update(line.get("library", {}))
        self.host.now = line.get("clock", self.host.now)
        if "call" in line:
            self.host.faults = dict(line.get("faults", {}))
            self.host.replies = list(self.fill(line.get("replies", [])))
            self.host.tools = self.fill(line.get("tools", {}))
            answer = self.host.call(line["call"], self.fill(line["with"]))
            for name, path in line.get("keep", {}).items():
                value = answer
                for part in path.split("."):
                    value = value[int(part)] if isinstance(value, list) else value[part]
                self.kept[name] = value
        if "drive" in line:
            self.drive(**self.fill(line["drive"]))
        if "pages" in line:
            print(compact(pages(**line["pages"]), sort_keys=True))

    def fill(self, value):
        """Puts in what was kept (`$name`), and JSON as text (`{"$json": ...}`)."""
        if isinstance(value, dict) and "$json" in value:
            return compact(self.fill(value["$json"]))
        if isinstance(value, dict):
            return {name: self.fill(field) for name, field in value.items()}
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        kept = isinstance(value, str) and value.startswith("$")
        return self.kept[value[1:]] if kept else value

    def drive(self, thread, input, holder, replies, tools):
        """Performs a thread and all that it spawns, until nothing of it is left to be done."""
        self.replies, self.tools = list(replies), tools
        start = {"thread": thread, "input": input, "holder": f"{holder}/0", "key": holder}
        self.run("runner.start", start | {"about": None})
        runs, named, cursor = 0, False, None
        while True:
            ready = {"limit": 10, "cursor": cursor, "under": thread}
            page = self.host.call("runner.ready", ready)["ok"]
            for entry in page["threads"]:
                runs += 1
                self.begin(entry["calls"], entry["thread"], f"{holder}/{runs}")
                named = True
            cursor = page.get("cursor")
            # From the first page again, as long as a list names somebody.
            if cursor is None and not named:
                return
            named = named and cursor is not None

    def begin(self, calls, thread, holder):
        """Gets a thread going that `ready` has named, by the calls that it named."""
        for name in calls:
            if name == "sweep":
                self.host.call("runner.sweep", {"thread": thread, "cursor": None})
            elif name == "claim":
                claim = {"thread": thread, "holder": holder, "proof": {"none": None}}
                self.run("runner.claim", claim)
            else:
                start = {"thread": thread, "input": None, "holder": holder, "key": holder}
                self.run(f"runner.{name}", start | {"about": None})

    def run(self, name, arguments):
        """Begins a run and performs its steps, in whichever thread a step is."""
        handle = self.host.call(name, arguments).get("ok", {})
        step, held = handle.get("step", {"kind": "finished"}), {}
        while step["kind"] != "finished":
            if held.get("thread") != step["thread"]:
                held = {"thread": step["thread"], "version": 0, "messages": []}
            submit = {"thread": step["thread"], "token": handle["token"]}
            submit |= {"version": step["version"], "outcome": self.perform(step, held)}
            submit["have"] = held["version"]
            step = self.host.call("runner.submit", submit)["ok"]

    def extend(self, held, step):
        """Adds to what is held of a thread what a request has, and prints what a model is sent."""
        asked, cursor = step["request"], None
        since, lacks = asked["since"], held["version"] < asked["since"]
        if since == 0:
            held |= {"system": asked["system"], "tools": asked["tools"], "messages": []}
        while lacks:
            given = {"thread": held["thread"], "after": held["version"], "until": since}
            page = self.host.call("transcript.messages", given | {"cursor": cursor})["ok"]
            held["messages"] += page["messages"]
            cursor = page.get("cursor")
            lacks = cursor is not None
        held["messages"] += asked["messages"]
        held["version"] = step["version"]
        print(compact({"model": held, "since": since}, sort_keys=True))

    def perform(self, step, held):
        if step["kind"] == "call-llm":
            self.extend(held, step)
            return self.replies.pop(0)
        if step["kind"] == "call-tools":
            calls = step["calls"]
            named = [{"version": call["version"], "index": call["index"]} for call in calls]
            return {"outcomes": [at | self.tools[call["name"]] for at, call in zip(named, calls)]}
        self.host.now = step["until"]
        return {"waited": None}


def pages(names, limit):
    """The names in pages, as a store gives them from either end."""
    storage, answer = Storage(), {}
    put = [{"key": {"collection": "blob", "name": name}, "value": name} for name in names]
    storage.commit([{"put": op | {"expect": {"absent": None}}} for op in put], False)
    for way, reverse in (("forwards", False), ("backwards", True)):
        start, end, found = "", "", []
        while start is not None and end is not None:
            page = storage.scan("blob", start, end, limit, reverse)
            found.append([item["key"]["name"] for item in page["items"]])
            start, end = ("", page.get("cursor")) if reverse else (page.get("cursor"), "")
        answer[way] = found
    return answer


def main():
    player = Player(sys.argv[1])
    with open(sys.argv[2], encoding="utf-8") as scenario:
        for line in scenario:
            player.play(json.loads(line))


main()
