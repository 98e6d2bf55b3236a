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

ini_set('display_errors', 'stderr'); // never into an answer

function access_log(int $status): void
{
    $target = preg_replace('/[^\x21-\x7e]/', '?', $_SERVER['REQUEST_URI']); // terminals obey other bytes
    $line = $_SERVER['REQUEST_METHOD'] . ' ' . $target . ' ' . $status . "\n";
    file_put_contents(DATA . '/access.log', $line, FILE_APPEND | LOCK_EX);
}

function answer(int $status, array $body): void
{
    $text = json_encode($body, JSON_THROW_ON_ERROR); // or the client gets 500, not nothing
    access_log($status);
    http_response_code($status);
    header('Content-Type: application/json');
    echo $text, "\n";
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
    $text = json_encode($order, JSON_THROW_ON_ERROR);
    $temp = "$file." . getmypid();
    // A reader never sees half an order, nor a client 201 for one that a full disk refused.
    if (file_put_contents($temp, $text) !== strlen($text) || !rename($temp, $file)) {
        throw new RuntimeException("cannot write $file");
    }
}

// amount returns a number that JSON can hold, or null. It is a million millions at most.
function amount(array $body): int|float|null
{
    $amount = $body['amount'] ?? null;
    if (!is_numeric($amount) || abs((float) $amount) > 1e12) { // 1e999 is infinite
        return null;
    }
    return $amount + 0; // "12\n" is numeric too, and would be two lines in payments.log
}

// wanted_id returns the ID that a client asks for, 0 if it asks for none, or null. After
// the greatest one, the IDs that the service gives still have at most 18 digits.
function wanted_id(array $body): ?int
{
    $id = $body['orderId'] ?? '0';
    $ok = (is_int($id) || is_string($id)) && preg_match('/^\d{1,17}$/D', (string) $id);
    return $ok ? (int) $id : null;
}

function create_order(int|float $amount, int $wanted): array
{
    $counter = fopen(DATA . '/next_id', 'c+');
    flock($counter, LOCK_EX);
    $next = max((int) stream_get_contents($counter), SEED + 1);
    $id = $wanted ?: $next;
    if (read_order($id) !== null) {
        answer(409, ['error' => 'order exists', 'orderId' => $id]);
    }
    $order = ['orderId' => $id, 'amount' => $amount, 'commission' => 'open'];
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
    if (!is_array($body) || amount($body) === null) {
        answer(400, ['error' => 'amount missing']);
    }
    if (wanted_id($body) === null) {
        answer(400, ['error' => 'orderId is no number of 1 to 17 digits']);
    }
    answer(201, create_order(amount($body), wanted_id($body)));
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
