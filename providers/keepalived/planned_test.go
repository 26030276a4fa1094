package keepalived

import "github.com/anyccm/cloud-controller-manager/providers/kit/conformance"

// plannedWrites are the writes that each kind of planned change makes.
var plannedWrites = []conformance.PlannedWrites{
	{Change: `create entry of Service (\S+) in ConfigMap (\S+)`, Writes: []string{"POST configmaps | PUT configmaps"}},
	{Change: `change entry of Service (\S+) in ConfigMap (\S+)`, Writes: []string{"PUT configmaps"}},
	{
		Change:  "(?:create|change) marks of Service",
		Because: "what kube-vip reads is written on the Service itself, which is among the changes of Services",
	},
}
