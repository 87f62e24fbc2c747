;; Has ten memories.
(component
  (core module $module (memory 1))
  (core instance (instantiate $module)) (core instance (instantiate $module)) (core instance (instantiate $module)) (core instance (instantiate $module)) (core instance (instantiate $module))
  (core instance (instantiate $module)) (core instance (instantiate $module)) (core instance (instantiate $module)) (core instance (instantiate $module)) (core instance (instantiate $module)))
