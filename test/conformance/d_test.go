package conformance

func groupD() []statement { return nil }
