package conformance

func groupF() []statement { return nil }
