package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

// servingRequest is a request of a node's kubelet, created some minutes after midnight.
func servingRequest(name, node string, minute int, decided bool) *certificatesv1.CertificateSigningRequest {
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC)},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeletServingSignerName, Username: "system:node:" + node, Groups: []string{"system:nodes"},
		},
	}
	if decided {
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}
	}
	return csr
}

// TestPreflightCountsWaitingNodes: nodes with a pending newest request are counted, not requests. Without permission to list there is no
// message.
func TestPreflightCountsWaitingNodes(t *testing.T) {
	t.Parallel()
	objects := []runtime.Object{
		servingRequest("a1", "a", 1, false), servingRequest("a2", "a", 2, false), // pending
		servingRequest("b1", "b", 1, false), servingRequest("b2", "b", 2, true), // issued
		servingRequest("c2", "c", 2, false), servingRequest("c1", "c", 1, true), // the newest is pending
	}
	for _, allowed := range []bool{true, false} {
		client := fake.NewClientset(objects...)
		client.PrependReactor("create", "selfsubjectaccessreviews", func(ktesting.Action) (bool, runtime.Object, error) {
			return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: allowed}}, nil
		})
		p := &preflight{}
		p.checkServingRequests(t.Context(), client)
		if !allowed {
			assert.Empty(t, p.results)
			assert.Len(t, client.Actions(), 1)
			continue
		}
		if assert.Len(t, p.results, 1) {
			assert.Equal(t, "certificates", p.results[0].Check)
			assert.Equal(t, "2 nodes wait for the serving certificates of their kubelets: a, c", p.results[0].Message)
		}
	}
}
