package ibm

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// A load balancer has no mark, and manual settings are kept. The record on a Service lists the settings of its annotations, so that they
// are reverted when these are removed, even while the program does not run.

// recordRanges stands for spec.loadBalancerSourceRanges in the record; other entries are annotations without their prefix.
const recordRanges = "source-ranges"

// recordAdopted precedes the ID of an adopted load balancer. Its host name is then in the status, as if it had been created for the
// Service; but it is never deleted.
const recordAdopted = "adopted="

// recordMade precedes the cluster and the name of a load balancer whose name an annotation chooses: it is written before the creation. It
// names the cluster, because a Service may be restored in another one with its record and status.
const recordMade = "made="

// madeRecord is the record's entry for a load balancer whose name the user chose. cluster is escaped, and proof may be "".
type madeRecord struct{ cluster, name, proof string }

func (m madeRecord) text() string {
	return strings.TrimSuffix(recordMade+m.cluster+"/"+m.name+"/"+m.proof, "/")
}

func madeRecords(service *v1.Service) (list []madeRecord) {
	for _, one := range words(service.Annotations[annotationRecord]) {
		text, is := strings.CutPrefix(one, recordMade)
		if fields := append(strings.Split(text, "/"), ""); is && len(fields) >= 3 {
			list = append(list, madeRecord{cluster: fields[0], name: fields[1], proof: fields[2]})
		}
	}
	return list
}

// records write on a Service what was set in the cloud for it, and how its load balancer is named.
type records struct {
	config Config
	// kube writes records; nil writes none.
	kube kubernetes.Interface
}

// name returns the name of a Service's load balancer.
func (r *records) name(_ string, service *v1.Service) string {
	return cmp.Or(r.chosenName(service), ownName(r.config.Cluster, service))
}

// chosenName is the name that an annotation chooses; "" where the load balancer has the Service's own.
func (r *records) chosenName(service *v1.Service) string {
	if name := service.Annotations[annotationName]; nameForm.MatchString(name) && name != ownName(r.config.Cluster, service) {
		return name
	}
	return ""
}

// creationEntry returns the record's entry for a load balancer that is about to be created for a Service.
func (r *records) creationEntry(service *v1.Service) []string {
	if name := r.chosenName(service); name != "" {
		return []string{madeRecord{cluster: r.clusterInRecord(), name: name}.text()}
	}
	return nil
}

func (r *records) clusterInRecord() string { return url.QueryEscape(r.config.Cluster) }

// madeNames returns the names of the load balancers that this cluster created for a Service, from its record.
func (r *records) madeNames(service *v1.Service) (names []string) {
	for _, one := range madeRecords(service) {
		if one.cluster == r.clusterInRecord() {
			names = append(names, one.name)
		}
	}
	return names
}

// isCopied reports whether the record says that another cluster, and not this one, created the load balancer with the chosen name.
func (r *records) isCopied(service *v1.Service) bool {
	name := r.chosenName(service)
	return !slices.Contains(r.madeNames(service), name) &&
		slices.ContainsFunc(madeRecords(service), func(m madeRecord) bool { return m.name == name })
}

// proof returns the record's evidence that a load balancer was created for the Service; "" without an API key. It needs the key, so that
// authors of Services can neither invent it nor copy it to another Service.
func (r *records) proof(service *v1.Service, lb *loadBalancer) string {
	if r.config.Credential.IsZero() {
		return ""
	}
	mac := hmac.New(sha256.New, []byte(r.config.Credential.Reveal()))
	fmt.Fprintf(mac, "%s %q %q %q", annotationRecord, r.config.Cluster, service.UID, lb.ID)
	return hex.EncodeToString(mac.Sum(nil)[:proofBytes])
}

const proofBytes = 16

// proves reports whether the record of a Service proves that a load balancer was created for it.
func (r *records) proves(service *v1.Service, lb *loadBalancer) bool {
	proof := r.proof(service, lb)
	return proof != "" && slices.ContainsFunc(madeRecords(service), func(m madeRecord) bool {
		return m.cluster == r.clusterInRecord() && m.name == lb.Name && hmac.Equal([]byte(m.proof), []byte(proof))
	})
}

// isOlder reports whether a load balancer with a chosen name is older than the Service, and no record proves that it was created for it: it
// was adopted, and the record is gone.
func (r *records) isOlder(lb *loadBalancer, service *v1.Service) bool {
	return r.chosenName(service) == lb.Name && !r.proves(service, lb) && !lb.Created.IsZero() &&
		lb.Created.Add(clocksDiffer).Before(service.CreationTimestamp.Time)
}

// clocksDiffer is by how much the clocks of the cloud and of the cluster may differ.
const clocksDiffer = time.Minute

// adoptionEntry returns the record's entry for an observed load balancer that was not created for the Service.
func (o observed) adoptionEntry() []string {
	if o.lb == nil || o.deletable {
		return nil
	}
	return []string{recordAdopted + o.lb.ID}
}

// recordForm matches a list of entries.
var recordForm = regexp.MustCompile(`^[a-z-]+(=[0-9A-Za-z_.~+%/-]+)?(,[a-z-]+(=[0-9A-Za-z_.~+%/-]+)?)*$`)

// entriesOf returns the entries of a Service's record as it was last written.
func entriesOf(service *v1.Service) []string {
	if text := service.Annotations[annotationRecord]; recordForm.MatchString(text) {
		return words(text)
	}
	return nil
}

func recordName(key string) string { return strings.TrimPrefix(key, annotationPrefix) }

// isRecorded reports whether an annotation was in force at the last reconciliation.
func (s settings) isRecorded(key string) bool {
	return slices.Contains(words(s.Record), recordName(key))
}

// requestedSettings returns the settings in force that are to be reverted when their annotations are removed.
func (s settings) requestedSettings() (list []string) {
	for key, set := range map[string]bool{
		annotationCheckDelay: s.Delay != 0, annotationCheckTimeout: s.Timeout != 0, annotationCheckRetries: s.Retries != 0,
		annotationCheckPath: s.CheckPath != "", annotationIdle: s.Idle != 0, annotationGroups: s.Groups != "", recordRanges: s.ranged,
	} {
		if set {
			list = append(list, recordName(key))
		}
	}
	slices.Sort(list)
	return list
}

// noteBefore adds the requested settings, and more, to the record before any write in the cloud.
func (r *records) noteBefore(ctx context.Context, req *services.Request, o observed, more ...string) error {
	list := slices.Concat(entriesOf(req.Service), o.settings.requestedSettings(), o.adoptionEntry(), more)
	slices.Sort(list)
	return r.note(ctx, req, slices.Compact(list))
}

// noteAfter reduces the record to the settings in force, after all changes and before waiting.
func (r *records) noteAfter(ctx context.Context, req *services.Request, o observed) error {
	list := slices.Concat(o.settings.requestedSettings(), o.adoptionEntry())
	if o.lb != nil && o.deletable && slices.Contains(r.madeNames(req.Service), o.lb.Name) {
		list = append(list, madeRecord{r.clusterInRecord(), o.lb.Name, r.proof(req.Service, o.lb)}.text())
	}
	slices.Sort(list)
	return r.note(ctx, req, list)
}

// note writes the record if it differs; an empty one is removed.
func (r *records) note(ctx context.Context, req *services.Request, list []string) error {
	text := strings.Join(list, ",")
	if r.kube == nil || req.Service.Annotations[annotationRecord] == text {
		return nil
	}
	var value any
	if text != "" {
		value = text
	}
	var err error
	req.Service, err = services.Annotate(ctx, r.kube, req.Service, map[string]any{annotationRecord: value})
	switch {
	case apierrors.IsNotFound(err) && text == "":
		return nil
	case err != nil:
		return fmt.Errorf("recording on the Service what its annotations set: %w", err)
	}
	return nil
}
