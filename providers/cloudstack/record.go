package cloudstack

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// records are the annotations that tell which addresses were acquired for Services.
type records struct {
	api  *api
	kube kubernetes.Interface

	mu sync.Mutex
	// requests holds the record that this process last wrote or first found, by Service UID: users could restore an older request.
	requests map[types.UID]string
}

// key seals records with the user's secret key, which authors of Services do not have.
func (r *records) key() string { return r.api.config.SecretKey.Reveal() }

// findSealed returns the Service's record if this program wrote it for the Service and this address; otherwise an empty one. Requests
// match any address.
func (r *records) findSealed(service *v1.Service, a address) record {
	if known := recordOf(service); (known.id == "" || known.id == a.ID) && known.isSealedBy(r.key(), service, a) {
		return known
	}
	return record{}
}

func (r *records) isAcquiredFor(service *v1.Service, s settings, rules []rule, a address) bool {
	return isAcquiredFor(service, s, r.findSealed(service, a), rules, a, r.api.clockOffset())
}

// noteAcquired records an acquired address. requested also sets the annotation of CloudStack's own controller.
func (r *records) noteAcquired(ctx context.Context, req *services.Request, a address, requested bool) error {
	if r.findSealed(req.Service, a).keep {
		return nil
	}
	return r.note(ctx, req, a.ID, a, requested)
}

// noteBeforeDeletion records the address before a rule is deleted: as acquired if only this rule shows that, and before the last rule as
// one to keep.
func (r *records) noteBeforeDeletion(ctx context.Context, req *services.Request, lb *observed, gone rule) error {
	rest := slices.DeleteFunc(slices.Clone(lb.rules), func(o rule) bool { return o.ID == gone.ID })
	text := keepPrefix + lb.address.ID
	switch {
	case r.findSealed(req.Service, *lb.address).id != "", r.isAcquiredFor(req.Service, lb.settings, rest, *lb.address):
		return nil
	case r.isAcquiredFor(req.Service, lb.settings, lb.rules, *lb.address):
		text = lb.address.ID
	case len(rest) > 0:
		return nil
	case req.Purpose == services.Delete:
		return nil // it stays, and nobody asks for it any more
	}
	return r.note(ctx, req, text, *lb.address, false)
}

// noteFirst remembers the record that this process finds first.
func (r *records) noteFirst(service *v1.Service) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.requests[service.UID]; !known {
		r.requests[service.UID] = service.Annotations[annotationRecord]
	}
}

// isAnsweredRequest reports whether a Service's record is an old request that was already answered.
func (r *records) isAnsweredRequest(service *v1.Service) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.findSealed(service, address{}).requestedAt.IsZero() && r.requests[service.UID] != service.Annotations[annotationRecord]
}

// textFormerRecord is the reason for not releasing such an address.
const textFormerRecord = "annotation " + annotationRecord + " is a former one, so that the address may be somebody else's"

// note writes a record with its seal; "" removes it. requested adds the annotation of CloudStack's own controller.
func (r *records) note(ctx context.Context, req *services.Request, text string, a address, requested bool) error {
	changes := map[string]any{annotationRecord: nil}
	if text != "" {
		text += sealMark + seal(r.key(), req.Service, text, a)
		changes[annotationRecord] = text
	}
	if requested {
		changes[annotationAssociated] = "true"
	}
	err := r.annotate(ctx, req, changes)
	if apierrors.IsNotFound(err) && (text == "" || req.Purpose == services.Delete) {
		err = nil // the Service is gone
	}
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.requests[req.Service.UID] = text
	}
	return err
}

// remove removes the record.
func (r *records) remove(ctx context.Context, req *services.Request) error {
	return r.note(ctx, req, "", address{}, false)
}

// annotate writes changed annotations; nil removes one.
func (r *records) annotate(ctx context.Context, req *services.Request, changes map[string]any) error {
	maps.DeleteFunc(changes, func(key string, value any) bool {
		has, present := req.Service.Annotations[key]
		return (value == nil && !present) || (present && value == has)
	})
	if len(changes) == 0 || r.kube == nil || req.Service.UID == "" { // an orphan has no Service
		return nil
	}
	var err error
	if req.Service, err = services.Annotate(ctx, r.kube, req.Service, changes); err != nil {
		return fmt.Errorf("recording on the Service what was made for it: %w", err)
	}
	return nil
}
