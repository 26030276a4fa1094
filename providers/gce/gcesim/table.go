package gcesim

import (
	"net/http"

	compute "google.golang.org/api/compute/v1"
)

var verbs = map[string]string{
	http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "update", http.MethodDelete: "delete",
}

// collection describes a kind of object.
type collection struct {
	kind, scope string
	// form returns the API's type, for strict decoding.
	form func() any
	// complete validates a requested object, and adds the API's fields.
	complete func(s *Sim, at location, d document) *refusal
	// uses returns the paths of referenced objects, which must exist and cannot be deleted.
	uses func(at location, d document) []string
	// replace: the kind has PUT and PATCH. fingerprint: they require the current one.
	replace, fingerprint bool
	// actions are further calls on an object.
	actions map[string]action
	// fixed objects cannot be created by the API.
	fixed bool
}

// action changes an object by its own call.
type action struct {
	form func() any
	make func(s *Sim, at location, d, body document) *refusal
	kind string
}

var collections map[string]collection

var groupActions = map[string]action{
	"addInstances":    {func() any { return new(compute.InstanceGroupsAddInstancesRequest) }, addToGroup, "addInstances"},
	"removeInstances": {func() any { return new(compute.InstanceGroupsRemoveInstancesRequest) }, removeFromGroup, "removeInstances"},
}

var ruleActions = map[string]action{
	"setTarget": {func() any { return new(compute.TargetReference) }, setTarget, "SetTarget"},
	"setLabels": {func() any { return new(compute.RegionSetLabelsRequest) }, setLabels, "setLabels"},
}

func acceptAny(*Sim, location, document) *refusal { return nil }

func init() { //nolint:gochecknoinits // the table refers to functions that read it
	collections = map[string]collection{
		"instances":   {kind: "compute#instance", scope: "zones/", fixed: true, complete: acceptAny},
		"networks":    {kind: "compute#network", scope: "global", fixed: true, complete: acceptAny},
		"subnetworks": {kind: "compute#subnetwork", scope: "regions/", fixed: true, complete: acceptAny},
		"firewalls": {
			kind: "compute#firewall", scope: "global", form: func() any { return new(compute.Firewall) }, complete: completeFirewall,
			uses: func(at location, d document) []string { return links(at, d["network"]) }, replace: true,
		},
		"routes": {
			kind: "compute#route", scope: "global", form: func() any { return new(compute.Route) }, complete: completeRoute,
			uses: func(at location, d document) []string { return links(at, d["network"]) },
		},
		"addresses": {
			kind: "compute#address", scope: "regions/", form: func() any { return new(compute.Address) }, complete: completeAddress,
			uses: func(at location, d document) []string { return links(at, d["subnetwork"]) },
		},
		"forwardingRules": {
			kind: "compute#forwardingRule", scope: "regions/", form: func() any { return new(compute.ForwardingRule) },
			complete: completeForwardingRule,
			uses: func(at location, d document) []string {
				return links(at, d["target"], d["backendService"], d["subnetwork"], d["network"])
			},
			actions: ruleActions,
		},
		"targetPools": {
			kind: "compute#targetPool", scope: "regions/", form: func() any { return new(compute.TargetPool) }, complete: completeTargetPool,
			uses: func(at location, d document) []string { return links(at, d["healthChecks"]) },
			actions: map[string]action{
				"addInstance":    {func() any { return new(compute.TargetPoolsAddInstanceRequest) }, addMembers("instances", "instance", 1000), "addInstance"},
				"removeInstance": {func() any { return new(compute.TargetPoolsRemoveInstanceRequest) }, removeMembers("instances", "instance"), "removeInstance"},
				"addHealthCheck": {
					func() any { return new(compute.TargetPoolsAddHealthCheckRequest) }, addMembers("healthChecks", "healthCheck", 1), "addHealthCheck",
				},
				"removeHealthCheck": {
					func() any { return new(compute.TargetPoolsRemoveHealthCheckRequest) }, removeMembers("healthChecks", "healthCheck"),
					"removeHealthCheck",
				},
			},
		},
		"httpHealthChecks": {
			kind: "compute#httpHealthCheck", scope: "global", form: func() any { return new(compute.HttpHealthCheck) }, complete: completeHTTPCheck,
			replace: true,
		},
		"healthChecks": {
			kind: "compute#healthCheck", scope: "global", form: func() any { return new(compute.HealthCheck) }, replace: true,
			complete: completeHealthCheck,
		},
		"backendServices": {
			kind: "compute#backendService", scope: "regions/", form: func() any { return new(compute.BackendService) },
			complete: completeBackendService, uses: backendUses, replace: true, fingerprint: true,
		},
		"instanceGroups": {
			kind: "compute#instanceGroup", scope: "zones/", form: func() any { return new(compute.InstanceGroup) }, complete: completeInstanceGroup,
			actions: groupActions,
		},
	}
}
