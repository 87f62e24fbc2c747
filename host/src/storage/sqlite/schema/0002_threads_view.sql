-- The view `threads`, for a person who opens the file: one row for each thread record, with its head beside it.
-- Read-only. Nothing in the program uses it.
--
-- Tied to the JSON of the records `thread` and `head` by a test. A record that is not JSON text shows as NULLs.
-- `input_tokens` is everything that was sent: input, cache reads and cache writes. `spend` is exact decimal text in US
-- dollars, made from the digits of the nano-USD integer, because it may not fit into SQLite's own integers.
CREATE VIEW threads AS
WITH
    joined AS (
        SELECT
            t.name AS name,
            iif(typeof(t.value) = 'text' AND json_valid(t.value), t.value, NULL) AS thread,
            iif(typeof(h.value) = 'text' AND json_valid(h.value), h.value, NULL) AS head
        FROM record_thread AS t
        LEFT JOIN record_head AS h ON h.name = t.name
    ),
    digits AS (
        SELECT
            *,
            substr('0000000000', 1, max(0, 10 - length(head -> '$.counters.spend')))
                || (head -> '$.counters.spend') AS nanos
        FROM joined
    )
SELECT
    coalesce(thread ->> '$.id', name) AS thread_id,
    thread ->> '$.directive' AS directive,
    thread ->> '$.parent' AS parent_id,
    head ->> '$.status' AS status,
    thread ->> '$.next' AS continuation_thread_id,
    thread ->> '$.previous' AS continuation_of,
    thread ->> '$.chain' AS chain_root_id,
    nullif(thread -> '$.result', 'null') AS result,
    iif(
        head IS NULL,
        NULL,
        json_object(
            'turns', head ->> '$.counters.turns',
            'input_tokens',
                (head ->> '$.counters.usage.input')
                + (head ->> '$.counters.usage.read')
                + (head ->> '$.counters.usage.write'),
            'output_tokens', head ->> '$.counters.usage.output',
            'spend',
                rtrim(rtrim(substr(nanos, 1, length(nanos) - 9) || '.' || substr(nanos, -9), '0'), '.')
        )
    ) AS cost,
    strftime('%Y-%m-%dT%H:%M:%S', thread ->> '$.created.seconds', 'unixepoch')
        || printf('.%03dZ', (thread ->> '$.created.nanos') / 1000000) AS created_at,
    strftime('%Y-%m-%dT%H:%M:%S', head ->> '$.updated.seconds', 'unixepoch')
        || printf('.%03dZ', (head ->> '$.updated.nanos') / 1000000) AS updated_at
FROM digits;
