"""A host of the component for Python: storage in memory, the other imports, and calls of exports.

Values are plain here: a record is a dict with the names of the WIT, a variant a dict with its
case, and an option that is none is left out. `to_wit` and `plain` lead to the binding and back.
"""

import json

from wasmtime import Engine, Store, component

NAME = "threadkeep:threads/{}@0.1.0"
PAGE_BYTES, GET_BYTES = 1 << 20, 4 << 20
LOST = "the store cannot be reached: away"
UNKNOWN = "nobody knows whether the commit was written: away"


class Refused(Exception):
    """An error of an import: its case, with a sentence for a person."""

    def __init__(self, case, message):
        super().__init__(case, message)
        self.answer = {case: {"code": case, "message": message}}


class Thrown(Exception):
    """A failure of the host's own in the middle of an import."""


def compact(value, **options):
    """JSON as text, the same in each of the hosts."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), **options)


def to_wit(kind, value):
    """A plain value as the binding wants it, by its type."""
    if isinstance(kind, component.RecordType):
        record = component.Record()
        for name, field in kind.fields:
            setattr(record, name, to_wit(field, value.get(name)))
        return record
    if isinstance(kind, component.ListType):
        return [to_wit(kind.element, item) for item in value]
    if isinstance(kind, component.OptionType):
        return None if value is None else to_wit(kind.payload, value)
    if isinstance(kind, component.FlagsType):
        return set(value)
    if isinstance(kind, (component.VariantType, component.ResultType)):
        ((case, payload),) = value.items()
        inner = dict(kind._cases())[case]
        payload = None if inner is None else to_wit(inner, payload)
        # A case is told by its class alone, unless two cases have the same one.
        return component.Variant(case, payload) if kind._tagged() else payload
    return int(value) if isinstance(kind, (component.U64, component.S64)) else value


def plain(value):
    """A value of the binding as JSON has it."""
    if isinstance(value, component.Record):
        fields = vars(value).items()
        return {name: plain(field) for name, field in fields if field is not None}
    if isinstance(value, component.Variant):
        return {value.tag: plain(value.payload)}
    if isinstance(value, (list, set)):
        return [plain(item) for item in value]
    exact = isinstance(value, bool) or not isinstance(value, int) or abs(value) < 1 << 53
    return value if exact else str(value)


def unpack(answer):
    """The case of an export's answer, and what it holds."""
    # A record has its case beside it, because an error is a record as well; a text or number is bare.
    if isinstance(answer, component.Variant):
        return answer.tag, answer.payload
    return "err" if isinstance(answer, component.Record) else "ok", answer


def page(rows, limit):
    """The rows that fit a page: at least one, if there is one."""
    size = 0
    for at, row in enumerate(rows):
        size += len(row["value"].encode())
        if at == limit or (at and size > PAGE_BYTES):
            return rows[:at]
    return rows


class Storage:
    """Records by (collection, name) and logs by (log, partition), in memory."""

    def __init__(self):
        self.records, self.logs = {}, {}

    def get(self, keys):
        found = [self.records.get((key["collection"], key["name"])) for key in keys]
        found = [item for item in found if item]
        if sum(len(item["value"].encode()) for item in found) > GET_BYTES:
            raise Refused("too-large", "these values are too many for one answer")
        return found

    def scan(self, collection, start, end, limit, reverse):
        # Python orders text by code points, which is the order of its UTF-8 bytes.
        names = sorted(
            name
            for of, name in self.records
            if of == collection and start <= name and (not end or name < end)
        )
        rows = [self.records[collection, name] for name in (names[::-1] if reverse else names)]
        items = page(rows, limit)
        answer = {"items": items, "damaged": []}
        if len(items) < len(rows):
            # `start` is given and `end` is not, so forwards it is the next row that is named.
            answer["cursor"] = (items[-1] if reverse else rows[len(items)])["key"]["name"]
        return answer

    def read_log(self, log, partition, start, limit, reverse):
        lines = self.logs.get((log, partition), {})
        wanted = [at for at in lines if (not start or at <= start if reverse else at >= start)]
        rows = [{"position": at, "value": lines[at]} for at in sorted(wanted, reverse=reverse)]
        return page(rows, limit)

    def commit(self, ops, how):
        ops = [(case, op) for op in ops for case, op in op.items()]
        for case, op in ops:
            if case in ("check", "put") and not self.holds(op["key"], op["expect"]):
                return False
        records, logs = dict(self.records), {name: dict(log) for name, log in self.logs.items()}
        for case, op in ops:
            if case == "put":
                name = (op["key"]["collection"], op["key"]["name"])
                version = records[name]["version"] + 1 if name in records else 1
                records[name] = {"key": op["key"], "version": version, "value": op["value"]}
            elif case == "delete":
                records.pop((op["collection"], op["name"]), None)
            elif case == "append":
                lines = logs.setdefault((op["log"], op["partition"]), {})
                last = max(lines, default=0)
                if op["at"] != last + 1:
                    raise Refused("corrupt", f"{op['log']} ends at {last}")
                lines[op["at"]] = op["value"]
            elif case == "trim":
                lines = logs.get((op["log"], op["partition"]), {})
                for at in [at for at in lines if at < op["below"]]:
                    del lines[at]
        self.records, self.logs = records, logs
        return True

    def holds(self, key, expect):
        ((case, version),) = expect.items()
        item = self.records.get((key["collection"], key["name"]))
        if case == "version":
            return item is not None and item["version"] == version
        return case == "any" or item is None


class Host:
    """The imports over one store and one clock, and an instance until an import throws."""

    def __init__(self, path):
        self.engine = Engine()
        self.component = component.Component.from_file(self.engine, path)
        self.storage, self.now, self.drawn = Storage(), {"seconds": 0, "nanos": 0}, 0
        self.library, self.faults, self.instance = {}, {}, None
        self.replies, self.tools = [], {}
        self.linker = component.Linker(self.engine)
        imports = self.component.type.imports(self.engine)
        for interface in ("storage", "clock", "random", "library", "llm", "tools"):
            items = imports[NAME.format(interface)].ty.exports(self.engine)
            with self.linker.root() as root, root.add_instance(NAME.format(interface)) as into:
                for name, item in items.items():
                    if isinstance(item.ty, component.FuncType):
                        into.add_func(name, self.serve(f"{interface}.{name}", item.ty.result))

    def serve(self, name, kind):
        """The import of this name. Whatever it raises ends the call and costs the instance."""
        method = getattr(self, name.replace(".", "_").replace("-", "_"), None)
        fallible = isinstance(kind, component.ResultType)

        def function(_, *arguments):
            fault = self.faults.pop(name, None)
            if fault == "throw" or method is None:
                raise Thrown(name)
            try:
                if "lost" in self.faults and name.startswith("storage."):
                    raise Refused("unavailable", LOST)
                answer = method(*map(plain, arguments))
                if fault == "late":
                    raise Thrown(name)
                if fault in ("unknown", "lost"):
                    self.faults[fault] = True
                    raise Refused("outcome-unknown", UNKNOWN)
            except Refused as refused:
                return to_wit(kind, {"err": refused.answer})
            return to_wit(kind, {"ok": answer} if fallible else answer)

        return function

    def storage_get(self, keys):
        return self.storage.get(keys)

    def storage_scan(self, *arguments):
        return self.storage.scan(*arguments)

    def storage_read_log(self, *arguments):
        return self.storage.read_log(*arguments)

    def storage_commit(self, *arguments):
        return self.storage.commit(*arguments)

    def clock_now(self):
        return self.now

    def random_bytes(self, count):
        """Counts; the fault `random` is what it answers in its place."""
        self.drawn += 1
        return self.faults.get("random", f"{self.drawn:0{2 * count}x}")

    def library_get(self, kind, names):
        documents = self.library.get(kind, {})
        found = [documents.get(name) for name in names or documents]
        return [None if document is None else compact(document) for document in found]

    def library_names(self, kind):
        return list(self.library.get(kind, {}))

    def llm_complete(self, request):
        """Prints what the model is sent, and answers the next reply."""
        print(compact({"asked": request}, sort_keys=True))
        ((case, reply),) = self.replies.pop(0).items()
        if case == "completion":
            return reply
        refused = Refused(case, "")
        refused.answer = reply
        raise refused

    def tools_call(self, calls):
        named = [{"version": call["version"], "index": call["index"]} for call in calls]
        return [at | self.tools[call["name"]] for at, call in zip(named, calls)]

    def call(self, name, arguments):
        """Calls an export with plain arguments, prints what it answers, and returns that."""
        interface, function = name.split(".")
        if self.instance is None:
            self.store = Store(self.engine)
            self.instance = self.linker.instantiate(self.store, self.component)
        at = self.instance.get_export_index(self.store, NAME.format(interface))
        at = self.instance.get_export_index(self.store, function, at)
        function = self.instance.get_func(self.store, at)
        parameters = function.type(self.store).params
        assert [at for at, _ in parameters] == list(arguments), (name, parameters)
        values = [to_wit(kind, arguments[at]) for at, kind in parameters]
        try:
            answer = function(self.store, *values)
            case, answer = unpack(answer)
            line = {"call": name, case: plain(answer)}
        except Thrown as thrown:
            self.instance = None
            line = {"call": name, "thrown": str(thrown)}
        self.faults = {}
        print(compact(line, sort_keys=True))
        return line
