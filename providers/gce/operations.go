package gce

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	compute "google.golang.org/api/compute/v1"
	"google.golang.org/api/googleapi"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
)

// operations are the cloud's changes in progress. Changes of different objects do not wait for each other.
type operations struct {
	room *waiting.Room[string, *compute.Operation]

	// pending are the paths of operations that nobody waits for any more, by the path of the changed object.
	pending sync.Map
}

func newOperations(a *api) *operations {
	return &operations{room: waiting.New(waiting.Each(a.operation), waiting.Pace{})}
}

// operation reads an operation by its path.
func (a *api) operation(ctx context.Context, path string) (*compute.Operation, error) {
	parts := strings.Split(path, "/") // projects/p/<scope…>/operations/o
	name := parts[len(parts)-1]
	var o *compute.Operation
	var err error
	switch parts[2] {
	case "regions":
		o, err = a.sdk.RegionOperations.Get(parts[1], parts[3], name).Context(ctx).Do()
	case "zones":
		o, err = a.sdk.ZoneOperations.Get(parts[1], parts[3], name).Context(ctx).Do()
	default:
		o, err = a.sdk.GlobalOperations.Get(parts[1], name).Context(ctx).Do()
	}
	if err == nil && (o.Name != name || o.Status == "") {
		err = cloudapi.ErrWrongAnswer
	}
	if err != nil {
		return nil, cloudapi.NotAbsence(apiError(err, "reading operation "+name)) // a missing operation proves nothing about its object
	}
	return o, nil
}

const statusDone = "DONE"

// requestFunc sends a request that changes an object. By its ID the cloud recognises repetitions.
type requestFunc func(ctx context.Context, id string) (*compute.Operation, error)

// changeCall has the common methods of the SDK's calls that change an object.
type changeCall[C any] interface {
	RequestId(id string) C
	Context(ctx context.Context) C
	Do(options ...googleapi.CallOption) (*compute.Operation, error)
}

// request returns a request with a call of the SDK.
func request[C changeCall[C]](call C) requestFunc {
	return func(ctx context.Context, id string) (*compute.Operation, error) {
		return call.RequestId(id).Context(ctx).Do()
	}
}

// sendAndWait makes one change of an object, and waits for its end. It first waits for an earlier change of the object.
func (a *api) sendAndWait(ctx context.Context, path, what string, send requestFunc) error {
	if err := a.operations.waitForPending(ctx, path, what); err != nil {
		return err
	}
	o, err := send(ctx, string(uuid.NewUUID()))
	if err == nil && (o.Name == "" || o.SelfLink == "") {
		err = cloudapi.ErrWrongAnswer
	}
	if err != nil {
		return apiError(err, what)
	}
	return a.operations.wait(ctx, path, resource(o.SelfLink), what, o)
}

// wait waits for an operation, and records it in pending if the wait is interrupted.
func (p *operations) wait(ctx context.Context, target, path, what string, o *compute.Operation) error {
	over := func(o *compute.Operation) bool { return o.Status == statusDone }
	var err error
	if o == nil || !over(o) {
		p.pending.Store(target, path)
		if o, err = p.room.Until(ctx, path, what, over); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	p.pending.Delete(target)
	return operationError(o, what)
}

// pendingOn returns the pending operation on an object; "" if there is none.
func (p *operations) pendingOn(target string) string {
	path, _ := p.pending.Load(target)
	text, _ := path.(string)
	return text
}

// waitForPending waits for the pending operation on an object. Its result shows in the object.
func (p *operations) waitForPending(ctx context.Context, target, what string) error {
	path := p.pendingOn(target)
	if path == "" {
		return nil
	}
	err := p.wait(ctx, target, path, what, nil)
	if p.pendingOn(target) == "" || errors.Is(err, cloudapi.ErrInvalid) {
		p.pending.Delete(target)
		return nil
	}
	return err
}
