package azure

import (
	"context"
	"errors"
	"strings"
	"time"

	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/shared"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// errKeep is the answer of an edit that leaves the document as it is; errRemove asks for its deletion.
var (
	errKeep   = shared.ErrKeep
	errRemove = errors.New("to be deleted")
)

// keepUnless is the result of an edit that may have changed nothing.
func keepUnless(changed bool, err error) error {
	if err == nil && !changed {
		return errKeep
	}
	return err
}

// edit returns a changed document, and leaves its argument as it is. It is called again if somebody else wrote meanwhile.
type edit func(d doc) (doc, error)

// deleteDocument is the edit that deletes a document.
func deleteDocument(d doc) (doc, error) { return d, errRemove }

// document says where a shared document is, and how it is created and deleted.
type document struct {
	id, what string
	// create returns the document before its first edit; nil if this program never creates it.
	create func() doc
	// beforeRemoval is called before the document is deleted.
	beforeRemoval func(ctx context.Context, d doc) error
	// gather is how long the first edit waits for others.
	gather time.Duration
}

// draft is a document, nil where it does not exist, and whether it is to be deleted.
type draft struct {
	doc    doc
	remove bool
}

const (
	// busyPatience bounds how long a write is tried again because Azure works on the same resource for somebody else, and busyPause is
	// the time between two tries.
	busyPatience = time.Minute
	busyPause    = 2 * time.Second
	// writeDeadline bounds one write with all that it waits for.
	writeDeadline = 10 * time.Minute
)

// hasFailed reports whether Azure gave up provisioning a resource in this state; another write makes it try again.
func hasFailed(state string) bool { return strings.EqualFold(state, "Failed") }

// codeInUse is Azure's code where a scale set still has pools of a load balancer.
const codeInUse = "LoadBalancerInUseByVirtualMachineScaleSet"

// codeOutdated is Azure's code where an ETag is no longer that of the resource.
const codeOutdated = "PreconditionFailed"

// submit hands in an edit, and waits until it is written. A document that does not exist, and is not created, stays so.
func (r *resources) submit(ctx context.Context, target document, e edit) error {
	result, err := r.writer.Submit(ctx, shared.Target[draft]{
		ID: target.id, Name: target.what, Timeout: writeDeadline,
		Gather: func() time.Duration { return target.gather },
		Open:   func() shared.Document[draft] { return &documentWrite{resources: r, target: target} },
	}, func(_ context.Context, before draft) (after draft, err error) {
		d := before.doc
		if d == nil && target.create != nil {
			d = target.create()
		}
		if d == nil {
			return after, errKeep
		}
		if after.doc, err = e(d); errors.Is(err, errRemove) {
			after.remove, err = true, nil
		}
		return after, err
	})
	if err == nil && result.doc == nil && target.create == nil { // what was just created may not be shown yet
		r.forgetElsewhere(strings.ToLower(target.id))
	}
	return err
}

// documentChange completes a change that is one edit of a document.
func (r *reconciler) documentChange(c change, target document, e edit) change {
	c.Object = target.what
	c.Make = r.thenObserve(func(ctx context.Context, q *services.Request, _ *observed) error {
		err := r.resources.submit(ctx, target, e)
		if c.Action == contract.PlanCreate {
			q.Asked(err)
		}
		return err
	})
	return c
}

// documentWrite is one write of a document with its tries.
type documentWrite struct {
	*resources
	target document
	// isFresh is set if the document does not come from a cache; isPrepared if beforeRemoval was called, as with members that left; wasRefused
	// if Azure then refused the deletion because of a member that came.
	isFresh, isPrepared, wasRefused bool
}

// Read implements shared.Document.
func (w *documentWrite) Read(ctx context.Context, fresh bool) (draft, error) {
	w.isFresh = fresh
	d, err := w.read(ctx, w.target.id, fresh)
	return draft{doc: d}, err
}

// Write implements shared.Document.
func (w *documentWrite) Write(ctx context.Context, before, after draft) (draft, error) {
	var err error
	switch {
	case after.remove && before.doc == nil:
		return before, nil
	case after.remove:
		after.doc, err = nil, w.tryRemoval(ctx, before.doc)
	default:
		err = retryWhileBusy(ctx, func() error {
			return w.api.put(ctx, w.target.what, w.target.id, networkVersion, after.doc, textOf(before.doc, "etag"))
		})
		if err == nil {
			after.doc, err = w.read(ctx, w.target.id, true)
		}
	}
	switch {
	case err == nil, errors.Is(err, errReadAgain):
		return after, err
	case errors.Is(err, cloudapi.ErrConflict) && codeOf(err) == codeOutdated:
		err = shared.Outdated(err)
	}
	w.invalidate(w.target.id)
	return draft{}, err
}

// errReadAgain has a document read again before it is deleted.
var errReadAgain = shared.Outdated(errors.New("it is read before its deletion"))

// tryRemoval deletes a document. It is read before, because others may have put something there, and again after its members left, which
// changes it.
func (w *documentWrite) tryRemoval(ctx context.Context, before doc) error {
	switch {
	case !w.isFresh:
		return errReadAgain
	case w.target.beforeRemoval == nil:
		return w.remove(ctx, w.target, before)
	case !w.isPrepared:
		if err := w.target.beforeRemoval(ctx, before); err != nil {
			return err
		}
		w.isPrepared = true
		return errReadAgain
	}
	err := w.remove(ctx, w.target, before)
	if !w.wasRefused && strings.EqualFold(codeOf(err), codeInUse) {
		w.isPrepared, w.wasRefused = false, true
		return errReadAgain
	}
	return err
}

func (r *resources) remove(ctx context.Context, target document, before doc) error {
	err := retryWhileBusy(ctx, func() error { return r.api.remove(ctx, target.what, target.id, networkVersion, textOf(before, "etag")) })
	r.invalidate(target.id)
	return err
}

// retryWhileBusy repeats a write while Azure is working on the same resource.
func retryWhileBusy(ctx context.Context, write func() error) error {
	return retryWhile(ctx, write, func(err error) bool { return errors.Is(err, cloudapi.ErrConflict) && codeOf(err) != codeOutdated })
}

// retryWhile repeats a write while its error is temporary.
func retryWhile(ctx context.Context, write func() error, passes func(error) bool) error {
	return services.Patiently(ctx, busyPatience, func() error {
		err := write()
		if passes(err) {
			return cloudproviderapi.NewRetryError(err.Error(), busyPause)
		}
		return err
	})
}
