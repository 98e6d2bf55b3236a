<?php
// Order service. Run it with the built-in server:
//
//   ORDERS_DATA=/var/lib/orders PHP_CLI_SERVER_WORKERS=32 php -S 127.0.0.1:8080 index.php
//
// One file per order in $ORDERS_DATA/orders; ORDERS_SEED=N says that the orders
// 1..N come from the old system: they exist, unpaid, until one is written here.

define('DATA', getenv('ORDERS_DATA') ?: __DIR__ . '/data');
define('SEED', (int) (getenv('ORDERS_SEED') ?: 0));

if (!is_dir(DATA . '/orders')) {
    @mkdir(DATA . '/orders', 0777, true);
}

function access_log(int $status): void
{
    $line = $_SERVER['REQUEST_METHOD'] . ' ' . $_SERVER['REQUEST_URI'] . ' ' . $status . "\n";
    file_put_contents(DATA . '/access.log', $line, FILE_APPEND | LOCK_EX);
}

function answer(int $status, array $body): void
{
    access_log($status);
    http_response_code($status);
    header('Content-Type: application/json');
    echo json_encode($body), "\n";
    exit;
}

function order_file(int $id): string
{
    return DATA . "/orders/$id.json";
}

function read_order(int $id): ?array
{
    $text = @file_get_contents(order_file($id));
    if ($text !== false) {
        return json_decode($text, true);
    }
    if ($id >= 1 && $id <= SEED) {
        return ['orderId' => $id, 'amount' => 100 + $id % 900, 'commission' => 'open'];
    }
    return null;
}

function write_order(array $order): void
{
    $file = order_file($order['orderId']);
    file_put_contents("$file." . getmypid(), json_encode($order));
    rename("$file." . getmypid(), $file); // a reader never sees half an order
}

function create_order(array $body): array
{
    $counter = fopen(DATA . '/next_id', 'c+');
    flock($counter, LOCK_EX);
    $next = max((int) stream_get_contents($counter), SEED + 1);
    $id = isset($body['orderId']) ? (int) $body['orderId'] : $next;
    if ($id < 1 || read_order($id) !== null) {
        answer(409, ['error' => 'order exists']);
    }
    $order = ['orderId' => $id, 'amount' => $body['amount'], 'commission' => 'open'];
    write_order($order);
    ftruncate($counter, 0);
    rewind($counter);
    fwrite($counter, (string) max($next, $id + 1));
    fclose($counter); // unlocks
    return $order;
}

function call_payment_provider(array $order): void
{
    usleep(1000 * min(max((int) ($_GET['slow'] ?? 50), 0), 10000));
    $line = 'order=' . $order['orderId'] . ' amount=' . $order['amount'] . "\n";
    file_put_contents(DATA . '/payments.log', $line, FILE_APPEND | LOCK_EX);
}

function settle(int $id): array
{
    $order = read_order($id);
    if ($order['commission'] === 'paid') {
        return ['paid' => false, 'reason' => 'already paid'];
    }
    call_payment_provider($order);
    $order['commission'] = 'paid';
    write_order($order);
    return ['paid' => true];
}

function statement(array $order): void
{
    $chunks = min(max((int) ($_GET['chunks'] ?? 5), 1), 100);
    $every = min(max((int) ($_GET['every'] ?? 200), 0), 2000);
    access_log(200);
    header('Content-Type: text/plain');
    for ($i = 1; $i <= $chunks; $i++) {
        echo "order {$order['orderId']} line $i of $chunks\n";
        @ob_flush();
        flush();
        if ($i < $chunks) {
            usleep(1000 * $every);
        }
    }
    exit;
}

$method = $_SERVER['REQUEST_METHOD'];
$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);

if ($method === 'POST' && $path === '/orders') {
    $body = json_decode(file_get_contents('php://input'), true);
    if (!is_array($body) || !is_numeric($body['amount'] ?? null)) {
        answer(400, ['error' => 'amount missing']);
    }
    answer(201, create_order($body));
}
if (!is_string($path) || !preg_match('#^/orders/(\d{1,18})(/settle|/statement)?$#D', $path, $m)) {
    answer(404, ['error' => 'not found']);
}
$id = (int) $m[1];
$order = read_order($id);
if ($order === null) {
    answer(404, ['error' => 'order not found']);
}
switch ($method . ' ' . ($m[2] ?? '')) {
    case 'GET ':
    case 'HEAD ':
        answer(200, $order);
    case 'POST /settle':
        answer(200, settle($id));
    case 'GET /statement':
        statement($order);
}
answer(405, ['error' => 'method not allowed']);
