package keepalived

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// kubeError adds the operation to an error of the API server, with a common class.
func kubeError(err error, doing string) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	code := int(status.Status().Code)
	e := &cloudapi.Error{Class: cloudapi.ClassOfStatus(code), Operation: doing, Status: code, Message: status.Status().Message, Cause: err}
	if code == http.StatusForbidden {
		e.Message += "; grant it, as the chart does"
	}
	return e
}
