package linode

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
)

const (
	// tokenPeriod is how often the token is checked, as by Linode's own controller.
	tokenPeriod  = 5 * time.Minute
	tokenTimeout = 30 * time.Second
)

// errTokenRefused contains the advice about an invalid token.
var errTokenRefused = errors.New("the API refuses the token of LINODE_API_TOKEN; make a new one in the Cloud Manager and " +
	"put it into the file or the variable")

// checkToken reads the profile, which every valid token may read, whatever its scopes.
func checkToken(ctx context.Context, a *api) error {
	_, err := call(ctx, "trying the token", a.sdk.GetProfile)
	if errors.Is(err, cloudapi.ErrUnauthorized) {
		return fmt.Errorf("%w: %w", errTokenRefused, err)
	}
	return err
}

// checkTokenAtStart refuses to start with an invalid token. If the cloud is unreachable, the program starts and waits for it.
func checkTokenAtStart(a *api) error {
	ctx, cancel := context.WithTimeout(context.Background(), tokenTimeout)
	defer cancel()
	err := checkToken(ctx, a)
	if errors.Is(err, errTokenRefused) {
		return err
	}
	if err != nil {
		klog.ErrorS(err, "The token could not be checked; it is checked again later")
	}
	return nil
}

// tokenJob checks the token even if nothing else calls the API. The results appear at /healthz?cloud-api and in events, like those of all
// calls. It does not end the program: the token file is read at each call, so that a new token is enough.
func tokenJob(a *api) loop.Job {
	return loop.Job{
		Name: "token-health", Period: tokenPeriod, Spacing: time.Second, Timeout: tokenTimeout,
		Run: func(ctx context.Context) error { return checkToken(ctx, a) },
	}
}
