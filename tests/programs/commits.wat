;; Puts head/one; then, in the middle of the commit that would put head/two, names operations that lie outside its memory.
(module
  (import "threadkeep:threads/storage@0.1.0" "commit" (func $commit (param i32 i32 i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 512) "headone{}")
  (func (export "threadkeep:threads/registry@0.1.0#get") (param i32 i32) (result i32)
    ;; An operation of 48 bytes: put (1) of key (collection, name) whatever is there (0), value.
    (i32.store8 (i32.const 256) (i32.const 1))
    (i32.store (i32.const 264) (i32.const 512))
    (i32.store (i32.const 268) (i32.const 4))
    (i32.store (i32.const 272) (i32.const 516))
    (i32.store (i32.const 276) (i32.const 3))
    (i32.store (i32.const 296) (i32.const 519))
    (i32.store (i32.const 300) (i32.const 2))
    (call $commit (i32.const 256) (i32.const 1) (i32.const 0) (i32.const 0))
    (call $commit (i32.const 256) (i32.const 10000) (i32.const 0) (i32.const 0))
    (unreachable)))
