raise RuntimeError("a module of the application that is broken")
