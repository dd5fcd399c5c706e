package conformance

func groupL() []statement { return nil }
