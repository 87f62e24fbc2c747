;; Answers `deleted` with the number of calls that its instance has had. It traps when the id has four bytes, and takes
;; a page of memory when it has five.
(module
  (memory (export "memory") 1)
  (global $calls (mut i32) (i32.const 0))
  (func (export "threadkeep:threads/registry@0.1.0#get") (param $id i32) (param $bytes i32) (result i32)
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (if (i32.eq (local.get $bytes) (i32.const 4)) (then (unreachable)))
    (if (i32.eq (local.get $bytes) (i32.const 5)) (then (drop (memory.grow (i32.const 1)))))
    (i32.store8 (i32.const 512) (i32.add (i32.const 48) (global.get $calls)))
    (i32.store8 (i32.const 0) (i32.const 1))
    (i32.store8 (i32.const 8) (i32.const 2))
    (i32.store (i32.const 16) (i32.const 512))
    (i32.store (i32.const 20) (i32.const 1))
    (i32.const 0)))
