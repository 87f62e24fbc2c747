-- The view `budget_ledger`, for a person who opens the file: one row for each thread record, with the account of its chain
-- on the tip and zeros on earlier links, so that a sum over a chain counts its account once. Read-only. Nothing in the
-- program uses it.
--
-- Tied to the JSON of the records `thread`, `head` and `chain` by a test. A record that is not JSON text shows as NULLs.
--
-- `max_spend`, `reserved_spend` and `actual_spend` are US dollars as floating-point numbers, for sums by hand;
-- `max_spend_exact` and so on are the same as exact decimal text. A maximum of NULL is unlimited. `actual_spend` has what
-- accounts under it have reported in it. A chain without an account of its own draws on that of `account_id`, and has no
-- maximum, nothing reserved and nothing spent of its own here: what it spent itself is the `cost` of the view `threads`.
-- A thread that was killed is `cancelled`, one that was continued by another `completed`.
CREATE VIEW budget_ledger AS
WITH
    joined AS (
        SELECT
            t.name AS name,
            iif(typeof(t.value) = 'text' AND json_valid(t.value), t.value, NULL) AS thread
        FROM record_thread AS t
    ),
    beside AS (
        SELECT
            j.name AS name,
            j.thread AS thread,
            iif(typeof(h.value) = 'text' AND json_valid(h.value), h.value, NULL) AS head,
            iif(typeof(c.value) = 'text' AND json_valid(c.value), c.value, NULL) AS chain
        FROM joined AS j
        LEFT JOIN record_head AS h ON h.name = j.name
        LEFT JOIN record_chain AS c ON c.name = lower(j.thread ->> '$.chain')
    ),
    owned AS (
        SELECT
            *,
            lower(chain ->> '$.tip') = name AS is_tip,
            coalesce(json_array_length(chain, '$.above'), 0) = 0
                OR (chain ->> '$.account.parent') IS NOT NULL AS has_account
        FROM beside
    ),
    amounts AS (
        SELECT
            *,
            CASE
                WHEN NOT is_tip THEN '0'
                WHEN has_account THEN nullif(chain -> '$.account.limit', 'null')
            END AS maximum,
            iif(chain IS NULL, NULL, iif(is_tip AND has_account, chain -> '$.account.reserved', '0')) AS reserved,
            iif(chain IS NULL, NULL, iif(is_tip AND has_account, chain -> '$.account.spent', '0')) AS actual
        FROM owned
    ),
    digits AS (
        SELECT
            *,
            substr('0000000000', 1, max(0, 10 - length(maximum))) || maximum AS maximum_digits,
            substr('0000000000', 1, max(0, 10 - length(reserved))) || reserved AS reserved_digits,
            substr('0000000000', 1, max(0, 10 - length(actual))) || actual AS actual_digits
        FROM amounts
    )
SELECT
    coalesce(thread ->> '$.id', name) AS thread_id,
    thread ->> '$.parent' AS parent_id,
    CAST(maximum AS REAL) / 1e9 AS max_spend,
    CAST(reserved AS REAL) / 1e9 AS reserved_spend,
    CAST(actual AS REAL) / 1e9 AS actual_spend,
    CASE head ->> '$.status'
        WHEN 'completed' THEN 'completed'
        WHEN 'continued' THEN 'completed'
        WHEN 'error' THEN 'error'
        WHEN 'cancelled' THEN 'cancelled'
        WHEN 'killed' THEN 'cancelled'
        ELSE iif(head IS NULL, NULL, 'active')
    END AS status,
    rtrim(rtrim(substr(maximum_digits, 1, length(maximum_digits) - 9) || '.' || substr(maximum_digits, -9), '0'), '.')
        AS max_spend_exact,
    rtrim(rtrim(substr(reserved_digits, 1, length(reserved_digits) - 9) || '.' || substr(reserved_digits, -9), '0'), '.')
        AS reserved_spend_exact,
    rtrim(rtrim(substr(actual_digits, 1, length(actual_digits) - 9) || '.' || substr(actual_digits, -9), '0'), '.')
        AS actual_spend_exact,
    iif(chain IS NULL, NULL, iif(has_account, thread ->> '$.chain', chain ->> '$.above[0]')) AS account_id
FROM digits;
