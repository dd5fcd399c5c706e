package conformance

func groupE() []statement { return nil }
