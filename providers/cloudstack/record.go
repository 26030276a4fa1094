package cloudstack

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// key seals records with the user's secret key, which authors of Services do not have.
func (r *reconciler) key() string { return r.api.config.SecretKey.Reveal() }

// sealedRecord returns the Service's record if this program wrote it for the Service and this address; otherwise an empty one. Requests
// match any address.
func (r *reconciler) sealedRecord(service *v1.Service, a address) record {
	s, _, _ := parseSettings(service)
	if known := recordOf(s.Record); (known.id == "" || known.id == a.ID) && known.isSealedBy(r.key(), service, a) {
		return known
	}
	return record{}
}

func (r *reconciler) isAcquiredFor(service *v1.Service, s settings, rules []rule, a address) bool {
	return isAcquiredFor(service, s, r.sealedRecord(service, a), rules, a, r.api.clockOffset())
}

// note records the acquired address. named also sets the annotation of CloudStack's own controller, for a requested address.
func (r *reconciler) note(ctx context.Context, q *services.Request, a address, named bool) error {
	if known := r.sealedRecord(q.Service, a); known.given {
		return nil
	}
	return r.noteText(ctx, q, r.withSeal(q.Service, a.ID, a), named)
}

// withSeal adds the seal to a record.
func (r *reconciler) withSeal(service *v1.Service, text string, a address) string {
	return text + sealMark + seal(r.key(), service, text, a)
}

// noteAddress records the address before a rule is deleted: as acquired if only this rule shows it, or as given before the last rule.
func (r *reconciler) noteAddress(ctx context.Context, q *services.Request, lb *loadBalancer, gone rule) error {
	if lb.address == nil {
		return nil
	}
	s, _, _ := parseSettings(q.Service)
	rest := slices.DeleteFunc(slices.Clone(lb.rules), func(o rule) bool { return o.ID == gone.ID })
	text := givenPrefix + lb.address.ID
	switch {
	case r.sealedRecord(q.Service, *lb.address).id != "", r.isAcquiredFor(q.Service, s, rest, *lb.address):
		return nil
	case r.isAcquiredFor(q.Service, s, lb.rules, *lb.address):
		text = lb.address.ID
	case len(rest) > 0:
		return nil
	case q.Purpose == services.Delete:
		return nil // it stays, and nobody asks for it any more
	}
	return r.noteText(ctx, q, r.withSeal(q.Service, text, *lb.address), false)
}

// requestRecords holds the requests that count, by Service UID: what this process last wrote or first found. Users could restore an older
// record.
type requestRecords struct {
	mu      sync.Mutex
	records map[types.UID]string
}

// noteFirst remembers the record that this process finds first.
func (q *requestRecords) noteFirst(service *v1.Service) {
	s, _, _ := parseSettings(service)
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, known := q.records[service.UID]; !known {
		q.records[service.UID] = s.Record
	}
}

// note remembers the record that this process writes.
func (q *requestRecords) note(uid types.UID, text string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.records[uid] = text
}

// isAnsweredRequest reports whether a Service's record is an old request that was already answered.
func (r *reconciler) isAnsweredRequest(service *v1.Service) bool {
	s, _, _ := parseSettings(service)
	r.questions.mu.Lock()
	defer r.questions.mu.Unlock()
	return !r.sealedRecord(service, address{}).asked.IsZero() && r.questions.records[service.UID] != s.Record
}

// wasAnswered is the reason for not releasing such an address.
const wasAnswered = "annotation " + annotationRecord + " is a former one, so that the address may be somebody else's"

// noteText writes the record; "" removes it. named adds the annotation of CloudStack's own controller.
func (r *reconciler) noteText(ctx context.Context, q *services.Request, text string, named bool) error {
	changes := map[string]any{annotationRecord: text}
	if text == "" {
		changes[annotationRecord] = nil
	}
	if named {
		changes[annotationAssociated] = "true"
	}
	err := r.annotate(ctx, q, changes)
	if apierrors.IsNotFound(err) && (text == "" || q.Purpose == services.Delete) {
		err = nil // the Service is gone
	}
	if err == nil {
		r.questions.note(q.Service.UID, text)
	}
	return err
}

// annotate writes changed annotations; nil removes one.
func (r *reconciler) annotate(ctx context.Context, q *services.Request, changes map[string]any) error {
	maps.DeleteFunc(changes, func(key string, value any) bool {
		has, there := q.Service.Annotations[key]
		return (value == nil && !there) || (there && value == has)
	})
	if len(changes) == 0 || r.kube == nil || q.Service.UID == "" { // an orphan has no Service
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": q.Service.UID, "annotations": changes}})
	if err != nil {
		return fmt.Errorf("recording on the Service what was made for it: %w", err)
	}
	stored, err := r.kube.CoreV1().Services(q.Service.Namespace).Patch(ctx, q.Service.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("recording on the Service what was made for it: %w", err)
	}
	// The stored Service lacks annotations translated from portable ones.
	updated := q.Service.DeepCopy()
	updated.ResourceVersion = stored.ResourceVersion
	if updated.Annotations == nil {
		updated.Annotations = map[string]string{}
	}
	for key, value := range changes {
		if value, set := value.(string); set {
			updated.Annotations[key] = value
		} else {
			delete(updated.Annotations, key)
		}
	}
	q.Service = updated
	return nil
}
