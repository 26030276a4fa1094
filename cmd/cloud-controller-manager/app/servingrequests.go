package app

import (
	"context"
	"fmt"
	"maps"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/registry/servingcert"
)

// checkServingRequests counts nodes whose newest request for a serving certificate is pending. Without permission to list requests it is
// skipped.
func (p *preflight) checkServingRequests(ctx context.Context, client kubernetes.Interface) {
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "list", Group: certificatesv1.GroupName, Resource: "certificatesigningrequests",
		}},
	}, metav1.CreateOptions{})
	if err != nil || !review.Status.Allowed {
		return
	}
	list, err := client.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{FieldSelector: servingcert.Selector})
	if err != nil {
		return // the API server may not have them
	}
	if names := waitingNodes(list.Items); len(names) > 0 {
		p.note(
			"certificates", severityWarning, fmt.Sprintf("%d nodes wait for the serving certificates of their kubelets: %s", len(names), joinSome(names)),
			"look at them with kubectl get csr, and approve them with kubectl certificate approve, or let the program do it: see docs/serving-certificates.md; without them kubectl logs and exec, and the metrics of these nodes, fail",
		)
	}
}

// waitingNodes returns the names of nodes whose newest request is pending, sorted.
func waitingNodes(list []certificatesv1.CertificateSigningRequest) []string {
	newest := map[string]*certificatesv1.CertificateSigningRequest{}
	for n := range list {
		csr := &list[n]
		name := servingcert.NodeName(csr)
		if before := newest[name]; name != "" && (before == nil || servingcert.Supersedes(csr, before)) {
			newest[name] = csr
		}
	}
	maps.DeleteFunc(newest, func(_ string, csr *certificatesv1.CertificateSigningRequest) bool { return !servingcert.Waiting(csr) })
	return slices.Sorted(maps.Keys(newest))
}
