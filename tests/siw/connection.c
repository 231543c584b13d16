/* The connection manager: connect, listen, accept, reject, close. */

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>

#include "peer.h"

/* next_cm_event: returns the next event; its type is -1 if none comes in that time. */
struct cm_event next_cm_event(struct rdma_event_channel *channel, int milliseconds)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct cm_event event = { .type = -1 };
	struct rdma_cm_event *source;

	if (poll(&fd, 1, milliseconds) <= 0)
		return event;
	check(rdma_get_cm_event(channel, &source) == 0, "take a connection event");
	event.type = source->event;
	event.status = source->status;
	event.id = source->id;
	event.parameters = source->param.conn;
	if (source->param.conn.private_data)
		memcpy(event.private_data, source->param.conn.private_data, source->param.conn.private_data_len);
	rdma_ack_cm_event(source);
	return event;
}

struct cm_event expect_cm_event(struct link *link, enum rdma_cm_event_type type)
{
	struct cm_event event = next_cm_event(link->channel, link->options->timeout * 1000);

	if ((int)event.type == -1)
		fail("no %s within %u s", rdma_event_str(type), link->options->timeout);
	if (event.type != type)
		fail("%s, status %d, where %s is expected", rdma_event_str(event.type), event.status, rdma_event_str(type));
	return event;
}

static struct sockaddr_storage peer_address(const struct options *options)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV }, *found;
	struct sockaddr_storage address;

	if (getaddrinfo(options->address, options->port, &hints, &found))
		fail("not an address and a port: %s %s", options->address, options->port);
	memcpy(&address, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return address;
}

/* Returns the length of private data of connection i: as the key says, or growing with i. */
static uint32_t private_length(const struct link *link, enum end end)
{
	uint32_t limit = end == ACTIVE ? link->options->request : link->options->reply;

	return link->options->grow && link->number < limit ? link->number : limit;
}

static struct rdma_conn_param own_parameters(const struct link *link, uint8_t *private_data)
{
	enum end own = link->options->role;
	uint32_t length = private_length(link, own);

	put_pattern(private_data, length, seed_of(link), own, PRIVATE_ITEM);
	return (struct rdma_conn_param){ .private_data = private_data, .private_data_len = length,
					 .responder_resources = link->options->reads,
					 .initiator_depth = link->options->reads };
}

static void check_private_data(const struct link *link, const struct cm_event *event)
{
	uint32_t length = private_length(link, peer_of(link));

	if (event->parameters.private_data_len != length)
		fail("%u octets of private data where %u are expected", event->parameters.private_data_len, length);
	check(is_pattern(event->private_data, length, seed_of(link), peer_of(link), PRIVATE_ITEM),
	      "find the peer's private data as it has to be");
	say(link, "the peer's %u octets of private data are right", length);
}

static void check_depths(const struct link *link, const struct cm_event *event)
{
	uint32_t ird = event->parameters.responder_resources, ord = event->parameters.initiator_depth;

	if (link->options->revision == 2 && (ird != link->options->reads || ord != link->options->reads))
		fail("IRD %u and ORD %u where both have to be %u", ird, ord, link->options->reads);
	say(link, "IRD %u, ORD %u", ird, ord);
}

/* resolve: has an active end's id find its device. */
void resolve(struct link *link)
{
	struct sockaddr_storage address = peer_address(link->options);

	link->channel = rdma_create_event_channel();
	check(link->channel && rdma_create_id(link->channel, &link->id, NULL, RDMA_PS_TCP) == 0, "create an id");
	check(rdma_resolve_addr(link->id, NULL, (struct sockaddr *)&address, 2000) == 0, "resolve the address");
	expect_cm_event(link, RDMA_CM_EVENT_ADDR_RESOLVED);
	check(rdma_resolve_route(link->id, 2000) == 0, "resolve the route");
	expect_cm_event(link, RDMA_CM_EVENT_ROUTE_RESOLVED);
	say(link, "the device is %s", ibv_get_device_name(link->id->verbs->device));
}

static void request_connection(struct link *link)
{
	uint8_t private_data[MAX_PRIVATE];
	struct rdma_conn_param parameters = own_parameters(link, private_data);

	if (rdma_connect(link->id, &parameters))
		fail("rdma_connect: %s", strerror(errno));
}

void connect_to_peer(struct link *link)
{
	request_connection(link);
	struct cm_event event = expect_cm_event(link, RDMA_CM_EVENT_ESTABLISHED);

	say(link, "connected");
	check_private_data(link, &event);
	check_depths(link, &event);
}

struct rdma_cm_id *listen_for_peer(const struct options *options)
{
	struct sockaddr_storage address = peer_address(options);
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener;

	check(channel && rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0, "create a listener");
	if (rdma_bind_addr(listener, (struct sockaddr *)&address) || rdma_listen(listener, 16))
		fail("cannot listen at %s %s: %s", options->address, options->port, strerror(errno));
	printf("listening\n");
	return listener;
}

/* take_request: makes the next request this link's connection, with events of its own. */
struct cm_event take_request(struct link *link, struct rdma_cm_id *listener)
{
	link->channel = listener->channel;
	struct cm_event event = expect_cm_event(link, RDMA_CM_EVENT_CONNECT_REQUEST);

	link->id = event.id;
	link->channel = rdma_create_event_channel();
	check(link->channel && rdma_migrate_id(link->id, link->channel) == 0, "give the connection events of its own");
	say(link, "asked for a connection at %s", ibv_get_device_name(link->id->verbs->device));
	check_private_data(link, &event);
	check_depths(link, &event);
	return event;
}

void accept_peer(struct link *link)
{
	uint8_t private_data[MAX_PRIVATE];
	struct rdma_conn_param parameters = own_parameters(link, private_data);

	if (rdma_accept(link->id, &parameters))
		fail("rdma_accept: %s", strerror(errno));
}

void reject_peer(struct link *link)
{
	uint8_t private_data[MAX_PRIVATE];
	struct rdma_conn_param parameters = own_parameters(link, private_data);

	check(rdma_reject(link->id, private_data, parameters.private_data_len) == 0, "reject");
	say(link, "rejected with %u octets of private data", parameters.private_data_len);
}

/* expect_rejection: waits until the peer's program rejects, with its private data. */
void expect_rejection(struct link *link)
{
	request_connection(link);
	struct cm_event event = expect_cm_event(link, RDMA_CM_EVENT_REJECTED);

	say(link, "rejected, status %d", event.status);
	check_private_data(link, &event);
}

/* expect_refusal: waits until the RDMA stack of either end refuses. */
void expect_refusal(struct link *link)
{
	request_connection(link);
	struct cm_event event = next_cm_event(link->channel, link->options->timeout * 1000);

	if (event.type != RDMA_CM_EVENT_REJECTED && event.type != RDMA_CM_EVENT_CONNECT_ERROR &&
	    event.type != RDMA_CM_EVENT_UNREACHABLE)
		fail("%s where no connection is expected", (int)event.type == -1 ? "nothing" : rdma_event_str(event.type));
	say(link, "refused: %s, status %d", rdma_event_str(event.type), event.status);
}

/* close_connection: ends the connection, or waits until the peer ends it. */
void close_connection(struct link *link, bool we_close)
{
	if (we_close && link->options->abort) {
		struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_ERR };

		check(ibv_modify_qp(link->id->qp, &attributes, IBV_QP_STATE) == 0, "move the queue pair to Error");
	} else if (we_close) {
		check(rdma_disconnect(link->id) == 0, "disconnect");
	}
	expect_cm_event(link, RDMA_CM_EVENT_DISCONNECTED);
	say(link, "disconnected by %s", we_close ? "this end" : "the peer");
}
