package conformance

func groupH() []statement { return nil }
