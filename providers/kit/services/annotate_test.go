package services

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestAnnotate: the stored Service gets the changes alone; the returned one keeps what was translated for this program.
func TestAnnotate(t *testing.T) {
	t.Parallel()
	stored := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1", Annotations: map[string]string{"old": "x"}}}
	kube := fake.NewClientset(stored)
	given := stored.DeepCopy()
	given.Annotations["translated"] = "y"
	now, err := Annotate(t.Context(), kube, given, map[string]any{"old": nil, "new": "z"})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"translated": "y", "new": "z"}, now.Annotations)
	assert.Contains(t, given.Annotations, "old", "the informer's copy stays")
	after, err := kube.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"new": "z"}, after.Annotations)

	missing := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gone"}}
	now, err = Annotate(t.Context(), kube, missing, map[string]any{"new": "z"})
	assert.True(t, apierrors.IsNotFound(err), "callers tell a Service that is gone")
	assert.Same(t, missing, now)
}
