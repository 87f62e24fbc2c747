;; Calls itself without end.
(module
  (memory (export "memory") 1)
  (func $deeper (param i64) (result i64)
    (i64.add (call $deeper (i64.add (local.get 0) (i64.const 1))) (i64.const 1)))
  (func (export "threadkeep:threads/registry@0.1.0#get") (param i32 i32) (result i32)
    (i32.wrap_i64 (call $deeper (i64.const 0)))))
