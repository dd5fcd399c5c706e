package conformance

func groupG() []statement { return nil }
