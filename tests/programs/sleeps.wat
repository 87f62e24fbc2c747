;; Reads a store that takes its time.
(module
  (import "threadkeep:threads/storage@0.1.0" "get" (func $get (param i32 i32 i32)))
  (memory (export "memory") 1)
  (func (export "threadkeep:threads/registry@0.1.0#get") (param i32 i32) (result i32)
    (call $get (i32.const 0) (i32.const 0) (i32.const 64))
    (unreachable)))
