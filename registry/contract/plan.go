package contract

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
)

// Planned is one change that the reconciliation of a Service would make in the cloud.
type Planned struct {
	// Action is create, change or delete.
	Action string `json:"action"`
	// Object names the object, such as "load balancer web".
	Object string `json:"object"`
	// Detail describes the difference, or the new object.
	Detail string `json:"detail,omitempty"`
	// Fields are those that differ, with the names of the cloud's API.
	Fields []Field `json:"fields,omitempty"`
}

// Field is one field of an object before and after a change; "" before its creation and after its deletion.
type Field struct {
	Name   string `json:"name"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Actions of a plan.
const (
	PlanCreate = "create"
	PlanChange = "change"
	PlanDelete = "delete"
)

// Finding is a message for the user of a Service, with the text of its event.
type Finding struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Warning bool   `json:"warning"`
}

// Plan holds the changes that reconciling a Service would make.
type Plan struct {
	// Changes are in order; none if everything is up to date.
	Changes []Planned
	// Findings are those known so far, even if there is an error.
	Findings []Finding
}

// Planner is implemented by clouds that can preview the reconciliation of a Service.
type Planner interface {
	// PlanLoadBalancer writes nothing, neither in the cloud nor in the cluster. A Service that cannot be reconciled gets the
	// error that its event would have.
	PlanLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (Plan, error)
}

// ErrNoPlan is returned by a cloud without plans.
var ErrNoPlan = errors.New("this provider cannot tell what it would do")
