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
	// tokenPeriod is how often the token is tried, as Linode's own controller does.
	tokenPeriod  = 5 * time.Minute
	tokenTimeout = 30 * time.Second
)

// errTokenRefused says what to do about a token that does not work.
var errTokenRefused = errors.New("the API refuses the token of LINODE_API_TOKEN; make a new one in the Cloud Manager and " +
	"put it into the file or the variable")

// checkToken asks for the profile, which every valid token may read, whatever its scopes.
func checkToken(ctx context.Context, a *api) error {
	_, err := call(ctx, "trying the token", a.sdk.GetProfile)
	if errors.Is(err, cloudapi.ErrUnauthorized) {
		return fmt.Errorf("%w: %w", errTokenRefused, err)
	}
	return err
}

// checkTokenAtStart refuses to start with a token that the API refuses. A cloud that cannot be reached says nothing about
// the token: the program starts, and waits for it.
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

// tokenJob tries the token also while nothing else calls the API. Its answers show like those of all calls, at
// /healthz?cloud-api and in events. It does not end the program: the token is read again at each call, so that a new one
// in its file is enough.
func tokenJob(a *api) loop.Job {
	return loop.Job{
		Name: "token-health", Period: tokenPeriod, Spacing: time.Second, Timeout: tokenTimeout,
		Run: func(ctx context.Context) error { return checkToken(ctx, a) },
	}
}
