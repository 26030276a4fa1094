package app

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestListServicesSaysWhatFailed: the error has the API server's reason.
func TestListServicesSaysWhatFailed(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("list", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("services is forbidden")
	})
	_, err := listServices(t.Context(), client)
	require.EqualError(t, err, "listing Services: services is forbidden")
}
