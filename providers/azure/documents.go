package azure

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/jsondoc"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// errKeep is the answer of an edit that leaves the document as it is; errRemove asks for its deletion.
var (
	errKeep   = errors.New("nothing to change")
	errRemove = errors.New("to be deleted")
)

// edit changes a document in place. It is asked again with a newer document where somebody else wrote meanwhile.
type edit func(d doc) error

// document is where a shared document is, and how it is made where it does not exist.
type document struct {
	id, what, version string
	// create is what is there before the first edit; nil where this program never creates it.
	create func() doc
	// beforeRemoval is called before the document is deleted.
	beforeRemoval func(ctx context.Context, d doc) error
	// gather is how long the first edit waits for others.
	gather time.Duration
}

// documents writes documents that several Services share: all edits that wait at a moment go out as one write, under the document's ETag.
type documents struct {
	api *api
	// read returns the document of now, or nil; wrote takes in what was written, nil for what was deleted or is not known.
	read  func(ctx context.Context, id string, fresh bool) (doc, error)
	wrote func(id string, d doc)

	mu      sync.Mutex
	waiting map[string][]*submission
	busy    map[string]bool
}

type submission struct {
	edit edit
	done chan outcome
}

type outcome struct {
	doc doc
	err error
}

const (
	// maxConflicts bounds how often a write is tried again because somebody else wrote first.
	maxConflicts = 5
	// busyPatience bounds how long a write is tried again because Azure works on the same resource for somebody else, and busyPause is
	// the time between two tries.
	busyPatience = time.Minute
	busyPause    = 2 * time.Second
	// writeDeadline bounds one write with all that it waits for.
	writeDeadline = 10 * time.Minute
)

// failed reports whether Azure has given up its work on a resource: written again, it is tried again.
func failed(d doc) bool {
	return strings.EqualFold(str(d, "properties", "provisioningState"), "Failed")
}

// codeInUse is Azure's code where a scale set still has pools of a load balancer.
const codeInUse = "LoadBalancerInUseByVirtualMachineScaleSet"

// codeOutdated is Azure's code where an ETag is no longer that of the resource.
const codeOutdated = "PreconditionFailed"

// submit hands in an edit, and waits until it is written. It returns the document as it then is, nil where it was deleted.
func (s *documents) submit(ctx context.Context, target document, e edit) (doc, error) {
	mine := &submission{edit: e, done: make(chan outcome, 1)}
	s.mu.Lock()
	if s.waiting == nil {
		s.waiting, s.busy = map[string][]*submission{}, map[string]bool{}
	}
	s.waiting[target.id] = append(s.waiting[target.id], mine)
	lead := !s.busy[target.id]
	s.busy[target.id] = true
	s.mu.Unlock()
	if lead {
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeDeadline)
		rescue.Go("writing "+target.what, func() {
			defer cancel()
			s.lead(detached, target)
		})
	}
	select {
	case o := <-mine.done:
		return o.doc, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lead writes until nobody waits.
func (s *documents) lead(ctx context.Context, target document) {
	pause := time.NewTimer(target.gather)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done(): // every write then fails, and is told so
	}
	for {
		s.mu.Lock()
		batch := s.waiting[target.id]
		delete(s.waiting, target.id)
		if len(batch) == 0 {
			delete(s.busy, target.id)
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		s.settle(ctx, target, batch)
	}
}

// settle writes a batch. Where Azure refuses it as a whole, each edit is tried alone, so that one Service's fault is its own.
func (s *documents) settle(ctx context.Context, target document, batch []*submission) {
	failed := func(err error) {
		for _, b := range batch {
			b.done <- outcome{nil, err}
		}
	}
	err := errors.New("the write ended without a result: this is a bug")
	func() {
		defer rescue.Into(&err, "writing "+target.what)
		err = s.write(ctx, target, &batch)
	}()
	switch {
	case err == nil:
	case len(batch) > 1 && errors.Is(err, cloudapi.ErrInvalid):
		for _, b := range batch {
			s.settle(ctx, target, []*submission{b})
		}
	default:
		failed(err)
	}
}

// write makes one document of a batch and puts it. Edits that fail by themselves are answered and leave the batch. What is to be deleted is
// read before, because others may have put something there, and again after its members left, which changes it.
func (s *documents) write(ctx context.Context, target document, batch *[]*submission) error {
	var removal removal
	for conflicts, fresh := 0, false; ; fresh = true {
		before, err := s.read(ctx, target.id, fresh)
		if err != nil {
			return err
		}
		after, changed, remove := s.apply(target, before, batch)
		if len(*batch) == 0 {
			return nil
		}
		again := false
		switch {
		case remove && before != nil:
			after = nil
			again, err = s.tryRemoval(ctx, target, before, fresh, &removal)
		case remove, !changed:
			after = before
		default:
			err = whileBusy(ctx, func() error { return s.put(ctx, target, before, after) })
			if err == nil {
				after, err = s.read(ctx, target.id, true)
			}
		}
		if again {
			continue
		}
		if err == nil {
			for _, b := range *batch {
				b.done <- outcome{after, nil}
			}
			return nil
		}
		s.wrote(target.id, nil)
		if !errors.Is(err, cloudapi.ErrConflict) || codeOf(err) != codeOutdated || conflicts == maxConflicts {
			return err
		}
		conflicts++
	}
}

// removal is how far the deletion of a document is: its members have left, or the cloud has refused it because of a member that came.
type removal struct{ isPrepared, wasRefused bool }

// tryRemoval deletes a document, or reports that it is to be read again before that.
func (s *documents) tryRemoval(ctx context.Context, target document, before doc, fresh bool, r *removal) (again bool, err error) {
	switch {
	case !fresh:
		return true, nil
	case target.beforeRemoval == nil:
		return false, s.remove(ctx, target, before)
	case !r.isPrepared:
		err = target.beforeRemoval(ctx, before)
		r.isPrepared = err == nil
		return r.isPrepared, err
	}
	err = s.remove(ctx, target, before)
	if !r.wasRefused && strings.EqualFold(codeOf(err), codeInUse) {
		r.isPrepared, r.wasRefused = false, true
		return true, nil
	}
	return false, err
}

// apply makes the edits of a batch one after the other.
func (*documents) apply(target document, before doc, batch *[]*submission) (after doc, changed, remove bool) {
	if before != nil {
		after = jsondoc.Clone(before)
	}
	var left []*submission
	for _, b := range *batch {
		draft := doc(nil)
		switch {
		case after != nil:
			draft = jsondoc.Clone(after)
		case target.create != nil:
			draft = target.create()
		}
		err := b.edit(draft)
		switch {
		case err == nil:
			after, changed, remove = draft, true, false
		case errors.Is(err, errRemove):
			after, changed, remove = draft, true, true
		case !errors.Is(err, errKeep):
			b.done <- outcome{nil, err}
			continue
		}
		left = append(left, b)
	}
	*batch = left
	return after, changed, remove
}

func (s *documents) put(ctx context.Context, target document, before, after doc) error {
	return s.api.put(ctx, target.what, target.id, target.version, after, str(before, "etag"))
}

func (s *documents) remove(ctx context.Context, target document, before doc) error {
	err := whileBusy(ctx, func() error { return s.api.remove(ctx, target.what, target.id, target.version, str(before, "etag")) })
	s.wrote(target.id, nil)
	return err
}

// whileBusy writes again while Azure refuses that because it works on the same resource.
func whileBusy(ctx context.Context, write func() error) error {
	return patiently(ctx, write, func(err error) bool { return errors.Is(err, cloudapi.ErrConflict) && codeOf(err) != codeOutdated })
}

// patiently writes again while the error is one that passes soon.
func patiently(ctx context.Context, write func() error, passes func(error) bool) error {
	return services.Patiently(ctx, busyPatience, func() error {
		err := write()
		if passes(err) {
			return cloudproviderapi.NewRetryError(err.Error(), busyPause)
		}
		return err
	})
}
