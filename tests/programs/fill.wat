;; Fills 48 MiB for ever, each time in one instruction that nothing interrupts.
(module
  (memory (export "memory") 768)
  (func (export "threadkeep:threads/registry@0.1.0#get") (param i32 i32) (result i32)
    (loop
      (memory.fill (i32.const 0) (i32.const 7) (i32.const 0x3000000))
      (br 0))
    (unreachable)))
