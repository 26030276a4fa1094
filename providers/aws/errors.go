package aws

import (
	"bytes"
	"encoding/xml"
	"errors"
	"net/http"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// classOf finds the class of a failure by its code and status. The codes are those of the lists "Common errors" and "Error codes" of the
// API references of EC2, Elastic Load Balancing and STS. Absence is that of the very object asked for.
func classOf(code string, status int) error {
	switch code {
	case "RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException",
		"TooManyRequestsException", "EC2ThrottledException", "BandwidthLimitExceeded", "SlowDown", "LimitExceededException",
		"Client.RequestLimitExceeded":
		return cloudapi.ErrRateLimited
	case "AuthFailure", "UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "ExpiredToken", "ExpiredTokenException",
		"RequestExpired", "InvalidClientTokenId", "SignatureDoesNotMatch", "IncompleteSignature", "MissingAuthenticationToken",
		"MissingAuthenticationTokenException", "OptInRequired", "UnrecognizedClientException", "InvalidAccessKeyId", "InvalidIdentityToken",
		"Blocked", "NotAuthorized":
		return cloudapi.ErrUnauthorized
	case "InvalidInstanceID.NotFound", "LoadBalancerNotFound", "AccessPointNotFound", "TargetGroupNotFound", "ListenerNotFound",
		"InvalidGroup.NotFound", "InvalidGroupId.NotFound", "InvalidRoute.NotFound", "InvalidRouteTableID.NotFound",
		"InvalidSubnetID.NotFound", "InvalidPermission.NotFound", "PolicyNotFound", "InvalidNetworkInterfaceID.NotFound":
		return cloudapi.ErrNotFound
	case "DependencyViolation", "ResourceInUse", "IncorrectInstanceState", "IncorrectState", "InvalidGroup.InUse",
		"DuplicateLoadBalancerName", "DuplicateTargetGroupName", "DuplicateListener", "DuplicatePolicyName", "InvalidGroup.Duplicate",
		"InvalidPermission.Duplicate", "RouteAlreadyExists", "PriorRequestNotComplete", "TransactionInProgressException",
		"OperationNotPermitted":
		return cloudapi.ErrConflict
	case "TooManyLoadBalancers", "TooManyTargetGroups", "TooManyListeners", "TooManyTargets", "TooManyRegistrationsForTargetId",
		"TooManyCertificates", "TooManyTags", "TooManyPolicies", "TooManyUniqueTargetGroupsPerLoadBalancer", "TargetGroupAssociationLimit",
		"RulesPerSecurityGroupLimitExceeded", "SecurityGroupLimitExceeded", "SecurityGroupsPerInterfaceLimitExceeded",
		"AddressLimitExceeded", "RouteLimitExceeded", "InsufficientFreeAddressesInSubnet", "TagLimitExceeded", "ResourceLimitExceeded":
		return cloudapi.ErrQuota
	case "", "InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable", "IDPCommunicationError":
		return cloudapi.ErrTransient
	}
	if status >= http.StatusInternalServerError {
		return cloudapi.ErrTransient
	}
	return cloudapi.ErrInvalid
}

// permissionRefused reports whether AWS refused one action for lack of a permission.
func permissionRefused(err error) bool { return isPermissionCode(codeOf(err)) }

func isPermissionCode(code string) bool {
	return code == "UnauthorizedOperation" || strings.HasPrefix(code, "AccessDenied")
}

// codeOf returns AWS's code of a failure; "" if AWS did not answer with one.
func codeOf(err error) string {
	if failure, ok := errors.AsType[smithy.APIError](err); ok {
		return failure.ErrorCode()
	}
	return ""
}

// apiError maps an error of the SDK to the common vocabulary and names the operation.
func apiError(err error, last *cloudapi.LastResponse, operation string) error {
	if err == nil {
		return nil
	}
	if own, ok := errors.AsType[*cloudapi.Error](err); ok {
		return cloudapi.Describe(own, operation)
	}
	mapped := &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: operation, Message: err.Error(), Cause: err}
	if _, sent := last.Last(); sent != nil {
		mapped.Message = sent.Error()
		return mapped
	}
	if answered, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		mapped.RequestID = answered.RequestID
		if answered.Response != nil {
			mapped.Status = answered.HTTPStatusCode()
		}
	}
	if failure, ok := errors.AsType[smithy.APIError](err); ok {
		mapped.Message = failure.ErrorCode() + ": " + failure.ErrorMessage()
		mapped.Class = classOf(failure.ErrorCode(), mapped.Status)
	}
	return mapped
}

// rootOf returns the name of the outermost element of an answer; "" if it is no XML.
func rootOf(body []byte) string {
	decoder := xml.NewDecoder(bytes.NewReader(body))
	for {
		token, err := decoder.Token()
		if err != nil {
			return ""
		}
		if start, ok := token.(xml.StartElement); ok {
			return start.Name.Local
		}
	}
}

// answerClass is the class of an answer that concerns every call: throttling, a refused credential, a service that fails.
// Elastic Load Balancing throttles with 400, EC2 with 503.
func answerClass(status int, body []byte) error {
	if status < http.StatusBadRequest {
		return nil
	}
	var failure struct {
		Code string `xml:"Error>Code"`
		EC2  string `xml:"Errors>Error>Code"`
	}
	_ = xml.Unmarshal(body, &failure) // an answer that is not AWS's has no code
	code := failure.Code + failure.EC2
	class := classOf(code, status)
	// A missing permission concerns one action, not the credential.
	if errors.Is(class, cloudapi.ErrRateLimited) || (errors.Is(class, cloudapi.ErrUnauthorized) && !isPermissionCode(code)) {
		return class
	}
	return nil
}

// refusedTarget reports whether AWS refused an instance that is gone, or not running any more.
func refusedTarget(err error) bool {
	code := codeOf(err)
	return strings.HasPrefix(code, "InvalidTarget") || strings.HasPrefix(code, "InvalidInstance")
}
