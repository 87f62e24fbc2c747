;; Hands the host the same megabyte again and again.
(module
  (import "threadkeep:threads/library@0.1.0" "get" (func $get (param i32 i32 i32 i32 i32)))
  (memory (export "memory") 32)
  (func (export "threadkeep:threads/registry@0.1.0#get") (param i32 i32) (result i32)
    (loop
      (call $get (i32.const 65536) (i32.const 0x100000) (i32.const 65536) (i32.const 1) (i32.const 0))
      (br 0))
    (unreachable)))
