"""What a picture of matplotlib shows, asked of the renderer: texts, where they are, on what."""

import numpy as np


def laid_out(figure):
    """840 pixels wide, as it is shown; its axes stay where they are from now on."""
    figure.set_dpi(100)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def pixels_of(figure):
    """[height, width, 3] of 0 to 1."""
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3] / 255


def texts_of(figure):
    """All that is written, tick labels too, as far as it is drawn."""
    found = [*figure.texts]
    for axis in figure.axes:
        if not axis.axison:
            continue
        found += [*axis.texts, axis.title, axis._left_title, axis._right_title]
        for line in (axis.xaxis, axis.yaxis):
            low, high = sorted(line.get_view_interval())
            found.append(line.label)
            found += [
                label
                for tick in line.get_major_ticks()
                for label in (tick.label1,)
                if low <= tick.get_loc() <= high
            ]
    return [text for text in found if text.get_visible() and text.get_text().strip()]


def boxes_of(texts):
    """[texts, 4] left, right, bottom, top in pixels."""
    extents = [text.get_window_extent() for text in texts]
    return np.array([(box.x0, box.x1, box.y0, box.y1) for box in extents])


def overlaps(texts, slack=1.0):
    """Pairs of texts whose boxes meet by more than so many pixels."""
    boxes = boxes_of(texts)
    low = np.maximum(boxes[:, None], boxes[None])[..., [0, 2]]
    high = np.minimum(boxes[:, None], boxes[None])[..., [1, 3]]
    meet = (high - low > slack).all(axis=2)
    rows, columns = np.nonzero(np.triu(meet, 1))
    return [(texts[i].get_text(), texts[j].get_text()) for i, j in zip(rows, columns, strict=True)]


def luminance(pixels):
    """[...] relative luminance (WCAG) of [..., 3], 0 to 1."""
    linear = np.where(pixels <= 0.04045, pixels / 12.92, ((pixels + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def worst_contrast(figure, texts):
    """(ratio, text) of that which reads worst; of its ground the tenth that reads worst counts."""
    from matplotlib.colors import to_rgb

    boxes = boxes_of(texts)
    for text in texts:
        text.set_visible(False)
    ground = pixels_of(figure)
    for text in texts:
        text.set_visible(True)
    ratios = []
    for text, (left, right, bottom, top) in zip(texts, boxes, strict=True):
        height = len(ground)
        part = ground[
            max(int(height - top), 0) : int(height - bottom) + 1, max(int(left), 0) : int(right) + 1
        ]
        under = luminance(part.reshape(-1, 3)) + 0.05
        ink = float(luminance(np.array(to_rgb(text.get_color())))) + 0.05
        ratio = np.maximum(under, ink) / np.minimum(under, ink)
        ratios.append((float(np.quantile(ratio, 0.1)), text.get_text()))
    return min(ratios)


def smallest_letters(figure):
    """Pixels of the smallest letters where the picture is shown 840 pixels wide."""
    points = min(text.get_fontsize() for text in texts_of(figure))
    return points / 72 * 840 / max(figure.get_figwidth(), 8.4)


def colour_at(figure, axis, image, x, y):
    """[3] of 0 to 1: what the picture has at a place of an axis."""
    column, line = axis.transData.transform((x, y))
    return image[round(len(image) - 1 - line), int(column)]
