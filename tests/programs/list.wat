;; Asks the store for 200 MB of keys: 12,500,000 of them, all empty, which take three times as much in the host.
(module
  (import "threadkeep:threads/storage@0.1.0" "get" (func $get (param i32 i32 i32)))
  (memory (export "memory") 3200)
  (func (export "threadkeep:threads/registry@0.1.0#get") (param i32 i32) (result i32)
    (call $get (i32.const 4096) (i32.const 12500000) (i32.const 0))
    (unreachable)))
