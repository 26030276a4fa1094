// Package situations lists what may happen to who may connect to a Service, with the case of the conformance suite that tries it.
package situations

// Situation is a row of the table of docs/security.md.
type Situation struct {
	Text string
	// Case is a part of the suite, or one of its cases.
	Case string
}

// Exceptions are why a case does not happen in a scope of a cloud, or has another end there: by scope and case.
type Exceptions map[string]map[string]string

// File is where a cloud's folder has its exceptions.
const File = "testdata/access.yaml"

// The cases that have exceptions.
const (
	Twice       = "Access/source ranges are said twice, and with bits of hosts"
	ClosedFirst = "Access/all is closed before the load balancer goes"
	Meanwhile   = "Access/somebody writes a rule right before write 1"
	Removed     = "Access/somebody takes the rules away, restart true"
	Full        = "Access/what rules stand in is full"
	Protected   = "Access/somebody protects the load balancer from deletion"
	Subnet      = "Narrowing/one subnet cannot be read"
	OfUDP       = "Access/source ranges of a port of UDP"
	Elsewhere   = "Access/beside a Service that everybody reaches elsewhere"
	Families    = "Narrowing/both families"
	Outlasting  = "Access/rules outlast their load balancer and their Service"
	Annotated   = "Narrowing/an annotation alone narrows"
	FormerPorts = "Access/several ports are left, and closing one is refused"
)

// RulesOf is the case about rules of somebody else's.
func RulesOf(who string) string { return "Access/rules of " + who + ", restart true" }

// All are the rows in their order.
func All() []Situation {
	return []Situation{
		{"ranges narrow, and each other write is refused", "Narrowing"},
		{"ranges narrow, and an annotation of the cloud is invalid", "Narrowing/an annotation of the cloud's is wrong"},
		{"ranges narrow, and a common annotation is invalid", "Narrowing/a common annotation is wrong"},
		{"ranges narrow, and no node is ready", "Narrowing/no node is ready"},
		{"ranges narrow, and instances cannot be read", "Narrowing/instances cannot be read"},
		{"ranges narrow, and one instance cannot be read", "Narrowing/one instance cannot be read"},
		{"ranges narrow, and one subnet cannot be read", Subnet},
		{"ranges narrow, and each kind of read is refused, but for those of the load balancer and its rules", "Narrowing/each read is refused"},
		{"ranges of both families narrow, and the Service is refused", Families},
		{"an annotation says who may connect and narrows, and the Service is refused", Annotated},
		{"an opening fails for now", "Narrowing/write 1 of a refused Service fails once"},
		{"all ranges are invalid", "Sources/none of them can be read"},
		{"all ranges are invalid, and a port is dropped", "Sources/none of them can be read, and a port is dropped"},
		{"one of several ranges is invalid", "Sources/one of several cannot be read"},
		{"one range is invalid, and another one is removed", "Sources/one cannot be read, and another is taken off"},
		{"all ranges are of another family", "Sources/all of them are of another family"},
		{"ranges occur twice, or have host bits", Twice},
		{"ranges hold for ports of UDP", OfUDP},
		{"ranges are removed", "Access/source ranges are removed"},
		{"two Services have a port, and one narrows and is deleted", "Access/two Services have a port, and one narrows and goes"},
		{"two Services have a port; the older one is deleted, then the last", "Access/two Services have a port, and the older one goes"},
		{"two Services have a port; one is refused, the other one narrows and is deleted", "Access/beside a Service with a setting that is refused"},
		{"two Services have a port; one has invalid ranges, the other one narrows and is deleted", "Access/beside a Service with ranges that cannot be read"},
		{"two Services have a port, one of them public, the other one internal or in another subnet", Elsewhere},
		{"two Services narrow, come and go at the same moment", "Access/changes at the same moment, 0s apart: two Services"},
		{"a stranger has the same rule", RulesOf("a stranger")},
		{"another cluster has the same rule", RulesOf("another cluster")},
		{"a rule of the Service exists twice", RulesOf("a second process")},
		{"somebody has a rule for another port", RulesOf("a passerby")},
		{"somebody writes a rule between our read and each write", Meanwhile},
		{"each write is refused once", "Access/write 1 is refused once"},
		{"each write loses its response", "Access/write 2 loses its answer"},
		{"somebody widens rules of the Service by hand", "Access/somebody widens our rules, restart true"},
		{"rules, groups or firewalls are deleted", Removed},
		{"others fill a group, or the Service has more ranges than it takes", Full},
		{"a Service leaves several ports, and closing one of them is refused", FormerPorts},
		{"a Service is deleted, and each closing is refused", "Access/closing 1 is refused when the Service goes"},
		{"a Service is deleted: its rules are closed before its load balancer", ClosedFirst},
		{"a Service is deleted, and somebody protects its load balancer from deletion", Protected},
		{"the load balancer and the Service are deleted without the program", Outlasting},
	}
}
