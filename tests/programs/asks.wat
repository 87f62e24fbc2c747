;; Asks for the time, 100,000 times.
(module
  (import "threadkeep:threads/clock@0.1.0" "now" (func $now (param i32)))
  (memory (export "memory") 1)
  (func (export "threadkeep:threads/registry@0.1.0#get") (param i32 i32) (result i32)
    (local $times i32)
    (loop $again
      (call $now (i32.const 0))
      (local.set $times (i32.add (local.get $times) (i32.const 1)))
      (br_if $again (i32.lt_u (local.get $times) (i32.const 100000))))
    (unreachable)))
