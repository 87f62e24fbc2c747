"""The peers of `cargo bench --bench peers`, each in a process of its own.

    peers.py langgraph|openai normal|full DIRECTORY

It answers each line of standard input with one line of JSON. `turn N TEXT` adds a user's question and an assistant's
answer TEXT and answers {"seconds"}; `newest` reads the newest 50 and answers {"seconds", "count"}; `about` answers
{"version", "journal", "synchronous"}, asked of the connection that writes. A turn takes one write of each library where
a real agent takes several.
"""

import asyncio
import importlib.metadata
import json
import pathlib
import sqlite3
import sys
import time

LEVELS = {"normal": 1, "full": 2}
NEWEST = 50


class LangGraphPeer:
    """AsyncSqliteSaver: a checkpoint with the whole list of messages after each turn."""

    async def open(self, directory, level):
        import aiosqlite
        from langchain_core.messages import AIMessage, HumanMessage
        from langgraph.checkpoint.base import empty_checkpoint
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        self.user, self.assistant, self.empty = HumanMessage, AIMessage, empty_checkpoint
        self.connection = await aiosqlite.connect(directory / "langgraph.db")
        self.saver = AsyncSqliteSaver(self.connection)
        await self.saver.setup()
        await self.connection.execute(f"PRAGMA synchronous = {level}")
        self.config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        self.messages = []

    async def turn(self, number, text):
        self.messages += [
            self.user(f"Question {number}?", id=f"u{number}"),
            self.assistant(text, id=f"a{number}"),
        ]
        checkpoint = self.empty()
        checkpoint["channel_values"] = {"messages": self.messages}
        checkpoint["channel_versions"] = {"messages": number}
        metadata = {"source": "loop", "step": number, "parents": {}}
        self.config = await self.saver.aput(self.config, checkpoint, metadata, {"messages": number})

    async def newest(self):
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        return len([row async for row in self.saver.alist(config, limit=NEWEST)])

    async def pragma(self, name):
        async with self.connection.execute(f"PRAGMA {name}") as rows:
            return (await rows.fetchone())[0]

    async def close(self):
        await self.connection.close()

    package = "langgraph-checkpoint-sqlite"


class OpenAIPeer:
    """SQLiteSession: a row for each message."""

    async def open(self, directory, level):
        from agents import SQLiteSession

        class LeveledSession(SQLiteSession):
            def _configure_connection(self, connection):
                SQLiteSession._configure_connection(connection)
                connection.execute(f"PRAGMA synchronous = {level}")

        self.session = LeveledSession("t", directory / "openai.db")

    async def turn(self, number, text):
        await self.session.add_items(
            [
                {"role": "user", "content": f"Question {number}?"},
                {"role": "assistant", "content": text},
            ]
        )

    async def newest(self):
        return len(await self.session.get_items(NEWEST))

    async def pragma(self, name):
        # Connections belong to threads: this is asked in one that writes as the others do.
        def ask():
            with self.session._locked_connection() as connection:
                return connection.execute(f"PRAGMA {name}").fetchone()[0]

        return await asyncio.to_thread(ask)

    async def close(self):
        self.session.close()

    package = "openai-agents"


async def serve(peer):
    for line in sys.stdin:
        command, _, rest = line.rstrip("\n").partition(" ")
        began = time.perf_counter()
        if command == "turn":
            number, _, text = rest.partition(" ")
            await peer.turn(int(number), json.loads(text))
            answer = {}
        elif command == "newest":
            answer = {"count": await peer.newest()}
        else:
            answer = {
                "version": importlib.metadata.version(peer.package),
                "sqlite": sqlite3.sqlite_version,
                "journal": await peer.pragma("journal_mode"),
                "synchronous": await peer.pragma("synchronous"),
            }
        answer["seconds"] = time.perf_counter() - began
        print(json.dumps(answer), flush=True)


async def main():
    name, level, directory = sys.argv[1:]
    peer = {"langgraph": LangGraphPeer, "openai": OpenAIPeer}[name]()
    await peer.open(pathlib.Path(directory), LEVELS[level])
    await serve(peer)
    await peer.close()


asyncio.run(main())
